/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LAPSE_BACKSTOP=uffd: what enters the kernel by no site is told all the same,
 * and nothing that a hook told of waits for it. To be run with that variable
 * set. Usage: api_backstop [--probe]
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/io_uring.h>

#include "tests/backstop.h"

static uint64_t backstopped(void)
{
    struct lapse_stats s = {.size = sizeof s};

    lapse_stats(&s);
    return s.path[LAPSE_PATH_BACKSTOP].releases;
}

static void untold(const char *name)
{
    drain();
    check(!event_count, "%s: nothing told (%d)", name, event_count);
}

static void test_inline(void)
{
    char *p = watched(16), *q;

    sys(SYS_munmap, p + PAGE, 2 * PAGE);
    told("munmap", p + PAGE, 2 * PAGE, LAPSE_REASON_MUNMAP);
    sys(SYS_madvise, p + 3 * PAGE, PAGE, MADV_DONTNEED);
    told("madvise DONTNEED", p + 3 * PAGE, PAGE, LAPSE_REASON_MADVISE);
    sys(SYS_madvise, p + 4 * PAGE, PAGE, MADV_FREE);
    told("madvise FREE", p + 4 * PAGE, PAGE, LAPSE_REASON_MADVISE);
    sys(SYS_mmap, p + 5 * PAGE, PAGE, RW, ANON | MAP_FIXED, -1, 0);
    told("MAP_FIXED", p + 5 * PAGE, PAGE, LAPSE_REASON_MUNMAP);
    q = (char *)sys(SYS_mremap, p + 6 * PAGE, 2 * PAGE, 4 * PAGE,
                    MREMAP_MAYMOVE, 0);
    drain();
    check(q != p + 6 * PAGE && event_count &&
              event_overlaps(&events[0], p + 6 * PAGE, 2 * PAGE),
          "mremap that moves: told");
    drain_all();
    q[0] = 1;
    sys(SYS_munmap, q, 4 * PAGE);
    untold("munmap of where it moved to");
    sys(SYS_mremap, p + 8 * PAGE, 8 * PAGE, 4 * PAGE, 0, 0);
    told("mremap that shrinks", p + 12 * PAGE, 4 * PAGE, LAPSE_REASON_MUNMAP);
    q = (char *)sys(SYS_mremap, p + 8 * PAGE, PAGE, PAGE,
                    MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    told("mremap DONTUNMAP", p + 8 * PAGE, PAGE, LAPSE_REASON_MREMAP);
    lapse_unwatch(sub, p, 16 * PAGE);
    sys(SYS_munmap, p, 16 * PAGE);
    sys(SYS_munmap, q, PAGE);
    untold("after unwatch");

    p = mmap(NULL, 4 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    lapse_watch(sub, p, 4 * PAGE);
    sys(SYS_madvise, p, PAGE, MADV_REMOVE);
    told("madvise REMOVE of shared memory", p, PAGE, LAPSE_REASON_MADVISE);
    p[0] = 1; /* libfabric's monitor, in MISSING mode, hangs here */
    check(p[0] == 1, "touched after the hole was punched");
    forget(p, 4);
    check(syscall(SYS_getpid) > 0, "syscall() still works");
}

/* The break, and a madvise that goes round by another door; a record that is
 * told open first and closed at last. */
static void test_others(void)
{
    char *p = sbrk(16 * PAGE);
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    struct iovec v;
    bool closed = false;
    uintptr_t low;

    low = ((uintptr_t)p + PAGE - 1) & -PAGE;
    memset(p, 1, 16 * PAGE);
    lapse_watch(sub, (char *)low, 15 * PAGE);
    sys(SYS_brk, low + 7 * PAGE);
    told("brk", (char *)low + 7 * PAGE,
         (((uintptr_t)p + 16 * PAGE + PAGE - 1) & -PAGE) - low - 7 * PAGE,
         LAPSE_REASON_MUNMAP);
    lapse_unwatch(sub, (char *)low, 15 * PAGE);
    syscall(SYS_brk, p + 16 * PAGE); /* as libc has it */

    p = watched(4);
    v = (struct iovec){p + PAGE, PAGE};
    sys(SYS_process_madvise, fd, &v, 1, MADV_DONTNEED, 0);
    told("process_madvise", p + PAGE, PAGE, LAPSE_REASON_MADVISE);
    close(fd);
    sys(SYS_madvise, p, PAGE, MADV_DONTNEED);
    drain();
    check(event_count && (events[0].flags & LAPSE_EVENT_OPEN) &&
              lapse_pending(sub),
          "madvise: open at first");
    for (int i = 0; i < 1000 && lapse_pending(sub); i++) {
        drain();
        closed |= event_count && !(events[0].flags & LAPSE_EVENT_OPEN);
        sleep_us(1000);
    }
    check(closed && !lapse_pending(sub), "and closed at last");
    forget(p, 4);
}

/* A hole before, a hole in, and a part that cannot be registered. */
static void test_odd_ranges(void)
{
    char *p = fresh(16 * PAGE);
    int fd = open("/proc/self/exe", O_RDONLY);

    munmap(p, 2 * PAGE);
    munmap(p + 4 * PAGE, 2 * PAGE);
    mmap(p + 8 * PAGE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
    close(fd);
    check(lapse_watch(sub, p, 16 * PAGE) == 0, "watch of an odd range");
    drain_all();
    for (int i = 0; i < 16; i++) {
        if (i < 2 || i == 4 || i == 5 || i == 8)
            continue;
        sys(SYS_madvise, p + i * PAGE, PAGE, MADV_DONTNEED);
        told("a page of it", p + i * PAGE, PAGE, LAPSE_REASON_MADVISE);
    }
    lapse_unwatch(sub, p, 16 * PAGE);
    sys(SYS_munmap, p, 16 * PAGE);
    untold("after unwatch");
}

/* One IORING_OP_MADVISE, by a ring of raw system calls. */
static bool ring_madvise(void *addr, size_t len, int advice)
{
    struct io_uring_params p = {0};
    int fd = (int)syscall(SYS_io_uring_setup, 4, &p);
    struct io_uring_sqe *sqe;
    char *sq, *cq;
    unsigned tail;
    int res;

    if (fd < 0)
        return false;
    sq = mmap(NULL, p.sq_off.array + p.sq_entries * sizeof(unsigned), RW,
              MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQ_RING);
    cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
              RW, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_CQ_RING);
    sqe = mmap(NULL, p.sq_entries * sizeof(*sqe), RW,
               MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQES);
    sqe[0] = (struct io_uring_sqe){.opcode = IORING_OP_MADVISE,
                                   .fd = -1,
                                   .addr = (uintptr_t)addr,
                                   .len = (unsigned)len,
                                   .fadvise_advice = (unsigned)advice};
    tail = *(unsigned *)(sq + p.sq_off.tail);
    *(unsigned *)(sq + p.sq_off.array) = 0;
    __atomic_store_n((unsigned *)(sq + p.sq_off.tail), tail + 1,
                     __ATOMIC_RELEASE);
    res = (int)syscall(SYS_io_uring_enter, fd, 1, 1, IORING_ENTER_GETEVENTS,
                       NULL, 0);
    res = res == 1 ? ((struct io_uring_cqe *)(cq + p.cq_off.cqes))->res : -1;
    close(fd);
    return res == 0;
}

static void test_ring(void)
{
    char *p = watched(4);

    if (ring_madvise(p + PAGE, PAGE, MADV_DONTNEED))
        told("io_uring madvise", p + PAGE, PAGE, LAPSE_REASON_MADVISE);
    else
        printf("skipped: no io_uring here\n");
    forget(p, 4);
}

static void test_second_libc(void)
{
    void *libc = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
    int (*their_munmap)(void *, size_t) =
        libc ? (int (*)(void *, size_t))dlsym(libc, "munmap") : NULL;
    char *p = watched(4);

    if (SANITIZED || !their_munmap) {
        printf("skipped: no second libc here\n");
    } else {
        their_munmap(p + PAGE, PAGE);
        drain();
        check(event_count && event_overlaps(&events[0], p + PAGE, PAGE),
              "munmap of a second libc: told");
    }
    forget(p, 4);
}

/* What the hooks see, the kernel need not tell. */
static void test_patched(void)
{
    uint64_t before = backstopped();
    char *p = watched(64), *q;

    munmap(p, PAGE);
    madvise(p + PAGE, PAGE, MADV_DONTNEED);
    mmap(p + 2 * PAGE, PAGE, RW, ANON | MAP_FIXED, -1, 0);
    mremap(p + 8 * PAGE, 4 * PAGE, 2 * PAGE, 0);
    drain_all();
    check(backstopped() == before, "patched releases make no event (%lu)",
          (unsigned long)(backstopped() - before));
    sys(SYS_madvise, p + PAGE, PAGE, MADV_DONTNEED);
    told("inline madvise after a patched one", p + PAGE, PAGE,
         LAPSE_REASON_MADVISE);
    sys(SYS_madvise, p + 2 * PAGE, PAGE, MADV_DONTNEED);
    told("inline madvise after MAP_FIXED", p + 2 * PAGE, PAGE,
         LAPSE_REASON_MADVISE);
    /* still watched, and mapped anew: told when it is, and after */
    q = mmap(p, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0);
    need(q == p, "mmap at a hint");
    told("mmap of a watched address", p, PAGE, LAPSE_REASON_MUNMAP);
    sys(SYS_madvise, p, PAGE, MADV_DONTNEED);
    told("inline madvise after mmap", p, PAGE, LAPSE_REASON_MADVISE);
    forget(p, 64);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!covered()) {
        printf("the backstop is off, or refused by the kernel\n");
        return 77;
    }
    if (argc > 1 && !strcmp(argv[1], "--probe"))
        return 0;
    sub = subscribe(LAPSE_POLL, LAPSE_FORK_KEEP, NULL, NULL);
    test_inline();
    test_others();
    test_odd_ranges();
    test_ring();
    test_second_libc();
    test_patched();
    return api_end();
}
