/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LAPSE_BACKSTOP=uffd: what enters the kernel by no site is told all the same,
 * and nothing that a hook told of waits for it. To be run with that variable
 * set. Usage: api_backstop [--probe | WATCHES]
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "api.h"
#include "shim/sys.h"

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static lapse_handle sub;
static struct lapse_event events[256];
static int event_count;

static void drain(void)
{
    int n;

    event_count = 0;
    do {
        n = lapse_poll(sub, events + event_count, 16);
        need(n >= 0, "lapse_poll");
        event_count += n;
    } while (n == 16 && event_count < 240);
}

/* Until nothing waits any more: records that are kept open close. */
static void drain_all(void)
{
    uint64_t end = now_ns() + 2000000000u;

    while (lapse_pending(sub) && now_ns() < end)
        drain();
}

static uint64_t backstopped(void)
{
    struct lapse_stats s = {.size = sizeof s};

    lapse_stats(&s);
    return s.path[LAPSE_PATH_BACKSTOP].releases;
}

static char *watched(size_t pages)
{
    char *p = fresh(pages * PAGE);

    need(lapse_watch(sub, p, pages * PAGE) == 0, "lapse_watch");
    drain_all();
    return p;
}

/* Told right after it, for that reason, in that range and in no other. */
static void told(const char *name, const void *addr, size_t len,
                 uint32_t reason)
{
    bool pending = lapse_pending(sub), some = false, other = false;

    drain();
    for (int i = 0; i < event_count; i++) {
        bool is = events[i].addr == (uintptr_t)addr && events[i].len == len;

        some |= is && events[i].reason == reason;
        other |= !is;
    }
    if (!check(pending && some && !other, "%s: told at once and exactly",
               name))
        for (int i = 0; i < event_count; i++)
            printf("  event %#lx+%#zx %s; wanted %p+%#zx\n", events[i].addr,
                   events[i].len, lapse_reason_name(events[i].reason), addr,
                   len);
    drain_all();
}

static void untold(const char *name)
{
    drain();
    check(!event_count, "%s: nothing told (%d)", name, event_count);
}

static void forget(char *p, size_t pages)
{
    lapse_unwatch(sub, p, pages * PAGE);
    munmap(p, pages * PAGE);
    drain_all();
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

/* B1: the callback wants a lock that the freeing thread holds; the callback
 * frees another watched block. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int called;
static _Atomic(char *) other_block;

static void on_release(const struct lapse_event *e, void *arg)
{
    char *block = atomic_exchange(&other_block, NULL);

    (void)e;
    (void)arg;
    if (block)
        sys(SYS_munmap, block, 64 * PAGE);
    pthread_mutex_lock(&mutex);
    atomic_fetch_add(&called, 1);
    pthread_mutex_unlock(&mutex);
}

static void test_b1(void)
{
    lapse_handle s = subscribe(LAPSE_CALLBACK, 0, on_release, NULL);
    char *p = fresh(256 * PAGE), *q = fresh(64 * PAGE);
    char *block = malloc(1 << 20);

    lapse_watch(s, p, 256 * PAGE);
    lapse_watch(s, q, 64 * PAGE);
    lapse_watch(s, block, 1 << 20);
    atomic_store(&other_block, q);
    pthread_mutex_lock(&mutex);
    sys(SYS_munmap, p, 256 * PAGE);
    free(block);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 2000 && atomic_load(&called) < 3; i++)
        sleep_us(1000);
    check(atomic_load(&called) >= 3, "B1: no hang, %d callbacks",
          atomic_load(&called));
    lapse_sync(s);
    lapse_unsubscribe(s);
}

static int mappings(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    int c, n = 0;

    while (f && (c = getc(f)) != EOF)
        n += c == '\n';
    if (f)
        fclose(f);
    return n;
}

static void test_no_leak(long count)
{
    enum { PAGES = 512 };
    char *p = fresh(PAGES * PAGE), *untouched;
    int before = mappings();
    uint64_t random = 1, end = now_ns() + 20000000000u;
    long i;

    for (i = 0; i < count && now_ns() < end; i++) {
        char *at = p + random_next(&random) % PAGES * PAGE;

        lapse_watch(sub, at, PAGE);
        lapse_unwatch(sub, at, PAGE);
    }
    check(mappings() <= before, "%ld watch and unwatch: %d mappings more", i,
          mappings() - before);
    /* watched by hundreds, first touched while it is, and let go */
    untouched = mmap(NULL, PAGES * PAGE, RW, ANON, -1, 0);
    for (i = 0; i < PAGES; i += 2)
        lapse_watch(sub, untouched + i * PAGE, PAGE);
    check(mappings() <= before + PAGES + 2, "%d watches: %d mappings more",
          PAGES / 2, mappings() - before);
    memset(untouched, 1, PAGES * PAGE);
    for (i = 0; i < PAGES; i += 2)
        lapse_unwatch(sub, untouched + i * PAGE, PAGE);
    munmap(untouched, PAGES * PAGE);
    check(mappings() <= before + 2, "and gone: %d more",
          mappings() - before);
    munmap(p, PAGES * PAGE);
}

/* The program closes what it did not open. */
static void test_closed(void)
{
    char *p = watched(8);
    bool overflow = false;

    close_range(3, ~0u, 0);
    sys(SYS_munmap, p, PAGE);
    for (int i = 0; i < 1000 && !overflow; i++) {
        drain();
        for (int k = 0; k < event_count; k++)
            overflow |= events[k].flags & LAPSE_EVENT_OVERFLOW;
        sleep_us(1000);
    }
    check(overflow, "closed by the program: OVERFLOW");
    drain_all();
    sys(SYS_munmap, p + PAGE, PAGE);
    told("closed, and made anew", p + PAGE, PAGE, LAPSE_REASON_MUNMAP);
    forget(p, 8);
}

static void in_child(char *p)
{
    bool pending = lapse_pending(sub);
    bool overflow = false;

    sys(SYS_munmap, p, PAGE); /* nobody sees it, so everything is told */
    drain();
    for (int k = 0; k < event_count; k++)
        overflow |= events[k].flags & LAPSE_EVENT_OVERFLOW;
    check(pending && overflow, "child: OVERFLOW");
    drain_all();
    sys(SYS_munmap, p + PAGE, PAGE);
    told("child: munmap", p + PAGE, PAGE, LAPSE_REASON_MUNMAP);
    fflush(stdout);
    _exit(api_end());
}

static void test_fork(void)
{
    char *p = watched(4);
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (!pid)
        in_child(p);
    check(wait_for(pid, 10) == 0, "child of fork");
    drain();
    check(!event_count, "parent: nothing of the child's");
    sys(SYS_munmap, p, PAGE);
    told("parent: munmap", p, PAGE, LAPSE_REASON_MUNMAP);
    forget(p, 4);
}

static bool covered(void)
{
    struct lapse_coverage rows[64];
    int n = lapse_coverage(rows, 64);

    for (int i = 0; i < n && i < 64; i++)
        if (!strcmp(rows[i].path, "inline system calls"))
            return rows[i].mechanism == LAPSE_KERNEL;
    return false;
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
    test_odd_ranges();
    test_ring();
    test_second_libc();
    test_patched();
    test_b1();
    test_fork();
    test_no_leak(argc > 1 ? atol(argv[1]) : 100000);
    test_closed();
    return api_end();
}
