/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much of somebody's stack a release takes, from libc's site on (G4): each
 * call is made once on a stack of its own, filled with a pattern, while its
 * memory is watched; and once more with no record left, so that it ends in
 * OVERFLOW. Usage: api_stack_use [LIMIT]; by default 1024 bytes.
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/openat2.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "api.h"

#define LEN (8 * PAGE)
#define GIB ((size_t)1 << 30)
#define EVENTS 64

static lapse_handle sub;
static struct {
    char path[32];
    int fd, segment;
    long self; /* pidfd */
    char *at, *again;
    struct iovec part[8];
    struct open_how how;
} of = {.path = "/tmp/lapse-XXXXXX",
        .how = {.flags = O_RDWR | O_TRUNC}};

static void nothing(void)
{
    syscall(SYS_getppid);
}

static void call_munmap(void)
{
    syscall(SYS_munmap, of.at, LEN);
}

static void call_mmap(void)
{
    syscall(SYS_mmap, of.at, LEN, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L);
}

/* Of a file that may be cut meanwhile. */
static void call_mmap_file(void)
{
    syscall(SYS_mmap, of.at, LEN, PROT_READ, MAP_SHARED | MAP_FIXED, of.fd,
            0L);
}

static void call_mremap(void)
{
    syscall(SYS_mremap, of.at, LEN, PAGE, 0L, 0L);
}

static void call_mremap_fixed(void)
{
    syscall(SYS_mremap, of.at, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED,
            of.again);
}

static void call_dontneed(void)
{
    syscall(SYS_madvise, of.at, LEN, MADV_DONTNEED);
}

static void call_remove(void)
{
    syscall(SYS_madvise, of.at, LEN, MADV_REMOVE);
}

static void call_process_madvise(void)
{
    syscall(SYS_process_madvise, of.self, of.part, 8L, MADV_DONTNEED, 0L);
}

static void call_shmdt(void)
{
    syscall(SYS_shmdt, of.again);
}

static void call_shmat(void)
{
    syscall(SYS_shmat, of.segment, of.at, SHM_REMAP);
}

static void call_remap_file_pages(void)
{
    syscall(SYS_remap_file_pages, of.again, PAGE, 0L, 1L, 0L);
}

static void call_brk(void)
{
    syscall(SYS_brk, of.at);
}

static void call_hole(void)
{
    syscall(SYS_fallocate, of.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            0L, PAGE);
}

static void call_ftruncate(void)
{
    syscall(SYS_ftruncate, of.fd, LEN / 2);
}

static void call_truncate(void)
{
    syscall(SYS_truncate, of.path, LEN / 2);
}

static void call_open(void)
{
    syscall(SYS_close, syscall(SYS_open, of.path, O_RDWR | O_TRUNC));
}

static void call_openat(void)
{
    syscall(SYS_close,
            syscall(SYS_openat, AT_FDCWD, of.path, O_RDWR | O_TRUNC));
}

static void call_openat2(void)
{
    syscall(SYS_close, syscall(SYS_openat2, AT_FDCWD, of.path, &of.how,
                               sizeof of.how));
}

static void call_creat(void)
{
    syscall(SYS_close, syscall(SYS_creat, of.path, 0600));
}

static void call_publish(void)
{
    lapse_publish(of.at, LEN);
}

/* What lies at `at` and `again`: memory, the file in both places, the end of
 * the heap, a segment. */
enum { MEMORY, A_FILE, HEAP, SEGMENT };

static const struct call {
    const char *name;
    void (*make)(void);
    int on;
} calls[] = {
    {"munmap", call_munmap, MEMORY},
    {"munmap of a file", call_munmap, A_FILE},
    {"mmap", call_mmap, MEMORY},
    {"mmap of a file", call_mmap_file, A_FILE},
    {"mremap", call_mremap, MEMORY},
    {"mremap FIXED", call_mremap_fixed, MEMORY},
    {"mremap FIXED of a file", call_mremap_fixed, A_FILE},
    {"brk", call_brk, HEAP},
    {"madvise", call_dontneed, MEMORY},
    {"madvise REMOVE", call_remove, A_FILE},
    {"process_madvise", call_process_madvise, MEMORY},
    {"shmdt", call_shmdt, SEGMENT},
    {"shmat REMAP", call_shmat, SEGMENT},
    {"remap_file_pages", call_remap_file_pages, A_FILE},
    {"fallocate", call_hole, A_FILE},
    {"ftruncate", call_ftruncate, A_FILE},
    {"truncate", call_truncate, A_FILE},
    {"open", call_open, A_FILE},
    {"openat", call_openat, A_FILE},
    {"openat2", call_openat2, A_FILE},
    {"creat", call_creat, A_FILE},
    {"lapse_publish", call_publish, MEMORY},
};

/* With a boundary of 1 GiB in the middle, or one of 2 MiB: so the release lies
 * in two parts of the filter's tree, which is the long way through it. */
static char *place(int on, size_t boundary)
{
    static char *room;
    char *at;

    if (!room) {
        room = mmap(NULL, 3 * GIB, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        need(room != MAP_FAILED, "room");
        room += 2 * GIB - (uintptr_t)room % GIB;
    }
    at = mmap(room + boundary - LEN / 2, LEN, PROT_READ | PROT_WRITE,
              MAP_FIXED | (on == A_FILE ? MAP_SHARED
                                        : MAP_PRIVATE | MAP_ANONYMOUS),
              on == A_FILE ? of.fd : -1, 0);
    need(at != MAP_FAILED, "a mapping");
    return at;
}

static void prepare(int on)
{
    static struct lapse_event events[EVENTS];

    need(!ftruncate(of.fd, LEN), "ftruncate");
    of.at = place(on, 0);
    of.again = place(on, 512 * PAGE);
    if (on == HEAP)
        need((of.at = sbrk(LEN)) != (void *)-1, "sbrk");
    if (on == SEGMENT)
        need(shmat(of.segment, of.again, SHM_REMAP) == of.again, "shmat");
    for (int i = 0; i < 8; i++)
        of.part[i] = (struct iovec){of.at + i * PAGE, PAGE};
    need(!lapse_watch(sub, of.at, LEN) && !lapse_watch(sub, of.again, LEN),
         "a watch");
    while (lapse_poll(sub, events, EVENTS) > 0)
        ;
}

static void undo(void)
{
    lapse_unwatch(sub, of.at, LEN);
    lapse_unwatch(sub, of.again, LEN);
}

static size_t stack_of(void (*call)(void))
{
    static char stack[32768];
    static ucontext_t here, there;
    size_t unused = 0;

    memset(stack, 1, sizeof stack);
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = sizeof stack;
    there.uc_link = &here;
    makecontext(&there, call, 0);
    swapcontext(&here, &there);
    while (stack[unused] == 1)
        unused++;
    return sizeof stack - unused;
}

static struct lapse_stats stats(void)
{
    struct lapse_stats s = {.size = sizeof s};

    lapse_stats(&s);
    return s;
}

/* Takes all records but none. */
static void fill(void)
{
    struct lapse_stats before = stats();

    for (uint64_t n = before.pool_size; n; n--)
        need(!lapse_publish(of.at, PAGE), "lapse_publish");
    need(stats().overflowed == before.overflowed, "a queue that is just full");
}

static void measure(const struct call *c, size_t base, size_t limit)
{
    struct lapse_stats before;
    size_t bytes;

    prepare(c->on);
    c->make(); /* so that libc's functions are bound */
    undo();
    prepare(c->on);
    before = stats();
    bytes = stack_of(c->make) - base;
    check(bytes < limit, "%s: %zu bytes of stack", c->name, bytes);
    check(stats().published > before.published,
          "%s: was published", c->name);
    undo();
    prepare(c->on);
    fill();
    before = stats();
    bytes = stack_of(c->make) - base;
    check(bytes < limit, "%s, no record left: %zu bytes of stack", c->name,
          bytes);
    check(stats().overflowed > before.overflowed,
          "%s: there was none", c->name);
    undo();
}

int main(int argc, char **argv)
{
    size_t limit = argc > 1 ? strtoul(argv[1], NULL, 0) : 1024;
    size_t base;

    setvbuf(stdout, NULL, _IOLBF, 0);
    of.fd = mkstemp(of.path);
    of.segment = shmget(IPC_PRIVATE, LEN, IPC_CREAT | 0600);
    of.self = syscall(SYS_pidfd_open, getpid(), 0);
    need(of.fd >= 0 && of.segment >= 0 && of.self >= 0, "a file, a segment");
    sub = subscribe(LAPSE_POLL, 0, NULL, NULL);
    nothing();
    base = stack_of(nothing);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        measure(&calls[i], base, limit);
    unlink(of.path);
    shmctl(of.segment, IPC_RMID, NULL);
    return api_end();
}
