/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Return value and errno of every releasing function are those of the kernel,
 * for good and bad arguments; errno is left alone on success. What is expected
 * is asked of the kernel by an inline system call on equal arguments.
 */
#include <fcntl.h>
#include <sys/ipc.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "victim.h"

#define UNTOUCHED 4711 /* no errno has this value */
#define HUGE (1ul << 60)
#define KERNEL 0xffff800000000000ul
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define RW (PROT_READ | PROT_WRITE)

enum answer { EXACT, ADDRESS }; /* ADDRESS: any will do */

static void compare(const char *what, enum answer kind, long want, long got,
                    int err)
{
    int failed = want < 0 && want >= -4095;
    int good;

    if (failed)
        good = got == -1 && err == (int)-want;
    else
        good = err == UNTOUCHED && got != -1 &&
               (kind == ADDRESS || got == want);
    if (good)
        printf("ok %s\n", what);
    else
        differs("%s: kernel says %ld, libc returned %ld, errno %d", what, want,
                got, err);
}

#define SAME(what, kind, kernel, libc)                                     \
    do {                                                                   \
        long want_ = (long)(kernel);                                       \
        long got_;                                                         \
        errno = UNTOUCHED;                                                 \
        got_ = (long)(libc);                                               \
        compare(what, kind, want_, got_, errno);                           \
    } while (0)
/* One address for both: the call is expected to fail, or to be repeatable. */
#define BOTH(what, nr, function, ...)                                      \
    SAME(what, EXACT, RAW(nr, __VA_ARGS__), function(__VA_ARGS__))

static void test_munmap(void)
{
    char *p = fresh(PAGE), *q = fresh(PAGE);

    SAME("munmap", EXACT, RAW(SYS_munmap, p, PAGE), munmap(q, PAGE));
    check(!is_mapped(p) && !is_mapped(q), "munmap did it");
    BOTH("munmap of nothing", SYS_munmap, munmap, p, PAGE);
    p = fresh(PAGE);
    BOTH("munmap unaligned", SYS_munmap, munmap, p + 1, PAGE);
    BOTH("munmap of no bytes", SYS_munmap, munmap, p, 0);
    BOTH("munmap huge", SYS_munmap, munmap, p, HUGE);
    BOTH("munmap wrapping", SYS_munmap, munmap, p, -1ul);
    BOTH("munmap kernel address", SYS_munmap, munmap, (void *)KERNEL, PAGE);
    check(is_mapped(p), "munmap that failed did nothing");
    munmap(p, PAGE);
}

static void test_madvise(void)
{
    char *p = fresh(4 * PAGE);

    BOTH("madvise DONTNEED", SYS_madvise, madvise, p, PAGE, MADV_DONTNEED);
    errno = UNTOUCHED;
    check(p[0] == 0 && p[PAGE] == 0x5a, "madvise did it");
    BOTH("madvise FREE", SYS_madvise, madvise, p, PAGE, MADV_FREE);
    BOTH("madvise REMOVE", SYS_madvise, madvise, p, PAGE, MADV_REMOVE);
    BOTH("madvise GUARD", SYS_madvise, madvise, p + PAGE, PAGE, 102);
    BOTH("madvise UNGUARD", SYS_madvise, madvise, p + PAGE, PAGE, 103);
    BOTH("madvise WILLNEED", SYS_madvise, madvise, p, PAGE, MADV_WILLNEED);
    BOTH("madvise unaligned", SYS_madvise, madvise, p + 1, PAGE,
         MADV_DONTNEED);
    BOTH("madvise no bytes", SYS_madvise, madvise, p, 0, MADV_DONTNEED);
    BOTH("madvise bad advice", SYS_madvise, madvise, p, PAGE, 4242);
    BOTH("madvise huge", SYS_madvise, madvise, p, -PAGE, MADV_DONTNEED);
    munmap(p + PAGE, PAGE);
    BOTH("madvise over a hole", SYS_madvise, madvise, p, 4 * PAGE,
         MADV_DONTNEED);
    check(p[3 * PAGE] == 0, "madvise over a hole did the rest");
    errno = UNTOUCHED;
    check(posix_madvise(p, PAGE, POSIX_MADV_DONTNEED) == 0 &&
              posix_madvise(p, PAGE, 4242) == EINVAL && errno == UNTOUCHED,
          "posix_madvise leaves errno alone");
    munmap(p, 4 * PAGE);
}

static void test_mmap(int fd)
{
    char *p = fresh(2 * PAGE);

    SAME("mmap", ADDRESS, RAW(SYS_mmap, 0, PAGE, RW, ANON, -1, 0),
         mmap(NULL, PAGE, RW, ANON, -1, 0));
    BOTH("mmap FIXED", SYS_mmap, mmap, p, PAGE, RW, ANON | MAP_FIXED, -1, 0);
    check(p[0] == 0 && p[PAGE] == 0x5a, "mmap FIXED did it");
    BOTH("mmap NOREPLACE", SYS_mmap, mmap, p, PAGE, RW,
         ANON | MAP_FIXED_NOREPLACE, -1, 0);
    BOTH("mmap no bytes", SYS_mmap, mmap, NULL, 0, RW, ANON, -1, 0);
    BOTH("mmap huge", SYS_mmap, mmap, NULL, HUGE, RW, ANON, -1, 0);
    BOTH("mmap FIXED unaligned", SYS_mmap, mmap, p + 1, PAGE, RW,
         ANON | MAP_FIXED, -1, 0);
    BOTH("mmap FIXED too high", SYS_mmap, mmap, (void *)KERNEL, PAGE, RW,
         ANON | MAP_FIXED, -1, 0);
    BOTH("mmap bad fd", SYS_mmap, mmap, NULL, PAGE, RW, MAP_PRIVATE, 9999, 0);
    BOTH("mmap no flags", SYS_mmap, mmap, NULL, PAGE, RW, 0, fd, 0);
    BOTH("mmap unaligned offset", SYS_mmap, mmap, NULL, PAGE, RW, MAP_SHARED,
         fd, 17);
    BOTH("mmap FIXED file", SYS_mmap, mmap, p, PAGE, RW,
         MAP_SHARED | MAP_FIXED, fd, PAGE);
    check(p[0] == 'B', "mmap took its offset");
    munmap(p, 2 * PAGE);
}

static void test_mremap(void)
{
    char *p = fresh(4 * PAGE), *q = fresh(4 * PAGE), *r;

    SAME("mremap shrink", ADDRESS, RAW(SYS_mremap, p, 4 * PAGE, PAGE, 0),
         mremap(q, 4 * PAGE, PAGE, 0));
    check(is_mapped(q) && !is_mapped(q + PAGE), "mremap shrink did it");
    SAME("mremap grow", ADDRESS,
         RAW(SYS_mremap, p, PAGE, 64 * PAGE, MREMAP_MAYMOVE),
         r = mremap(q, PAGE, 64 * PAGE, MREMAP_MAYMOVE));
    check(r[0] == 0x5a && r[64 * PAGE - 1] == 0, "mremap moved the bytes");
    p = fresh(PAGE);
    q = mmap(NULL, PAGE, PROT_NONE, ANON, -1, 0);
    errno = UNTOUCHED;
    check(mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q &&
              errno == UNTOUCHED && q[0] == 0x5a && !is_mapped(p),
          "mremap FIXED");
    errno = UNTOUCHED;
    p = mremap(q, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    check(p != MAP_FAILED && errno == UNTOUCHED && p[0] == 0x5a && q[0] == 0,
          "mremap DONTUNMAP");
    munmap(q, PAGE);
    BOTH("mremap of nothing", SYS_mremap, mremap, q, PAGE, 2 * PAGE, 0);
    BOTH("mremap unaligned", SYS_mremap, mremap, p + 1, PAGE, PAGE, 0);
    BOTH("mremap to no bytes", SYS_mremap, mremap, p, PAGE, 0, 0);
    BOTH("mremap bad flags", SYS_mremap, mremap, p, PAGE, PAGE, 64);
    BOTH("mremap FIXED alone", SYS_mremap, mremap, p, PAGE, PAGE,
         MREMAP_FIXED, q);
    BOTH("mremap onto itself", SYS_mremap, mremap, p, PAGE, PAGE,
         MREMAP_MAYMOVE | MREMAP_FIXED, p);
    BOTH("mremap huge", SYS_mremap, mremap, p, PAGE, HUGE, MREMAP_MAYMOVE);
    munmap(p, PAGE);
}

static void test_brk(void)
{
    char *end = sbrk(0);

    errno = UNTOUCHED;
    check(brk(end + 16 * PAGE) == 0 && errno == UNTOUCHED &&
              sbrk(0) == end + 16 * PAGE, "brk up");
    memset(end, 1, 16 * PAGE);
    check(brk(end) == 0 && errno == UNTOUCHED && sbrk(0) == end, "brk down");
    check((char *)RAW(SYS_brk, 0) == end, "brk told the kernel");
    check(sbrk(2 * PAGE) == end && sbrk(-2 * (long)PAGE) == end + 2 * PAGE &&
              errno == UNTOUCHED && sbrk(0) == end, "sbrk up and down");
    errno = UNTOUCHED;
    check(brk((void *)HUGE) == -1 && errno == ENOMEM, "brk too far");
    errno = UNTOUCHED;
    check(sbrk(1l << 46) == (void *)-1 && errno == ENOMEM, "sbrk too far");
    check(sbrk(0) == end, "the break stayed");
    errno = UNTOUCHED;
    check(syscall(SYS_brk, 0) == (long)end && errno == UNTOUCHED,
          "syscall(SYS_brk, 0)");
}

static void test_shm(void)
{
    int id = shmget(IPC_PRIVATE, PAGE + 10, IPC_CREAT | 0600);
    char *area = fresh(4 * PAGE), *p;

    if (id < 0) {
        printf("ok shm (none here)\n");
        return;
    }
    errno = UNTOUCHED;
    p = shmat(id, NULL, 0);
    check(p != (void *)-1 && errno == UNTOUCHED && p[0] == 0, "shmat");
    check(shmdt(p) == 0 && errno == UNTOUCHED && !is_mapped(p), "shmdt");
    errno = UNTOUCHED; /* mincore set it */
    check(shmat(id, area, SHM_REMAP) == area && errno == UNTOUCHED &&
              area[PAGE] == 0 && area[2 * PAGE] == 0x5a, "shmat REMAP");
    check(shmdt(area) == 0 && errno == UNTOUCHED, "shmdt of it");
    check(shmat(id, area + 100, SHM_RND) == area && errno == UNTOUCHED,
          "shmat RND");
    BOTH("shmdt unaligned", SYS_shmdt, shmdt, area + 1);
    shmdt(area);
    BOTH("shmdt of nothing", SYS_shmdt, shmdt, area);
    BOTH("shmdt of NULL", SYS_shmdt, shmdt, NULL);
    BOTH("shmat bad id", SYS_shmat, shmat, -1, NULL, 0);
    BOTH("shmat unaligned", SYS_shmat, shmat, id, area + 1, 0);
    BOTH("shmat over something", SYS_shmat, shmat, id, area + 2 * PAGE, 0);
    BOTH("shmat REMAP NULL", SYS_shmat, shmat, id, NULL, SHM_REMAP);
    shmctl(id, IPC_RMID, NULL);
    BOTH("shmat of removed", SYS_shmat, shmat, id, NULL, 0);
}

static void test_process_madvise(void)
{
    int self = (int)RAW(SYS_pidfd_open, getpid(), 0);
    char *p = fresh(4 * PAGE);
    struct iovec v[2] = {{p, PAGE}, {p + 2 * PAGE, PAGE}};

    BOTH("process_madvise COLD", SYS_process_madvise, process_madvise, self, v,
         2, MADV_COLD, 0);
    BOTH("process_madvise DONTNEED", SYS_process_madvise, process_madvise,
         self, v, 2, MADV_DONTNEED, 0);
    BOTH("process_madvise bad fd", SYS_process_madvise, process_madvise, -1, v,
         2, MADV_COLD, 0);
    BOTH("process_madvise bad flags", SYS_process_madvise, process_madvise,
         self, v, 2, MADV_COLD, 1);
    BOTH("process_madvise bad vector", SYS_process_madvise, process_madvise,
         self, (struct iovec *)8, 2, MADV_COLD, 0);
    BOTH("process_madvise long vector", SYS_process_madvise, process_madvise,
         self, v, 100000, MADV_COLD, 0);
    munmap(p + 2 * PAGE, PAGE);
    BOTH("process_madvise half", SYS_process_madvise, process_madvise, self, v,
         2, MADV_DONTNEED, 0);
    close(self);
    munmap(p, 4 * PAGE);
}

static void test_remap_file_pages(int fd)
{
    char *p = mmap(NULL, 2 * PAGE, RW, MAP_SHARED, fd, 0);
    char *q = fresh(PAGE);

    BOTH("remap_file_pages", SYS_remap_file_pages, remap_file_pages, p, PAGE,
         0, 1, 0);
    check(p[0] == 'B', "remap_file_pages did it");
    BOTH("remap_file_pages private", SYS_remap_file_pages, remap_file_pages, q,
         PAGE, 0, 0, 0);
    BOTH("remap_file_pages prot", SYS_remap_file_pages, remap_file_pages, p,
         PAGE, 1, 0, 0);
    munmap(p, 2 * PAGE);
    munmap(q, PAGE);
}

static void test_syscall(int fd)
{
    char *p = fresh(2 * PAGE), *q = fresh(PAGE);

    SAME("syscall munmap", EXACT, RAW(SYS_munmap, q, PAGE),
         syscall(SYS_munmap, p + PAGE, PAGE));
    SAME("syscall munmap bad", EXACT, RAW(SYS_munmap, p + 1, PAGE),
         syscall(SYS_munmap, p + 1, PAGE));
    SAME("syscall madvise", EXACT, 0,
         syscall(SYS_madvise, p, PAGE, MADV_DONTNEED));
    SAME("syscall mmap", EXACT, p,
         syscall(SYS_mmap, p, PAGE, RW, MAP_SHARED | MAP_FIXED, fd, PAGE));
    check(p[0] == 'B', "syscall took all six arguments");
    SAME("syscall mmap bad", EXACT, -EBADF,
         syscall(SYS_mmap, 0, PAGE, RW, MAP_SHARED, 9999, 0));
    q = fresh(PAGE);
    SAME("syscall mremap", EXACT, q,
         syscall(SYS_mremap, p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, q));
    SAME("syscall shmdt", EXACT, -EINVAL, syscall(SYS_shmdt, q));
    SAME("syscall getpid", EXACT, getpid(), syscall(SYS_getpid));
    SAME("syscall unknown", EXACT, -ENOSYS, syscall(4000));
    SAME("syscall -1", EXACT, -ENOSYS, syscall(-1));
    SAME("syscall number high half", EXACT, RAW(SYS_getpid + (1l << 32)),
         syscall(SYS_getpid + (1l << 32)));
    SAME("syscall writev", EXACT, 0, syscall(SYS_writev, 1, NULL, 0));
    munmap(q, PAGE);
}

/* Closes it, and says only that it was one. */
static long opened(long fd)
{
    if (fd < 0)
        return fd;
    close((int)fd);
    return 0;
}

static void test_files(int fd)
{
    const char *none = "/none-such/file", *bad = (const char *)KERNEL;
    int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    BOTH("ftruncate", SYS_ftruncate, ftruncate, fd, 3 * PAGE);
    BOTH("ftruncate down", SYS_ftruncate, ftruncate, fd, PAGE);
    BOTH("ftruncate of nothing", SYS_ftruncate, ftruncate, -1, 0);
    BOTH("ftruncate below zero", SYS_ftruncate, ftruncate, fd, -1L);
    BOTH("truncate", SYS_truncate, truncate, path, 2 * PAGE);
    BOTH("truncate of nothing", SYS_truncate, truncate, none, 0);
    BOTH("truncate, bad path", SYS_truncate, truncate, bad, 0);
    BOTH("fallocate", SYS_fallocate, fallocate, fd, 0, 0L, 2 * PAGE);
    BOTH("fallocate, hole", SYS_fallocate, fallocate, fd, punch, 0L, PAGE);
    BOTH("fallocate of nothing", SYS_fallocate, fallocate, -1, punch, 0L,
         PAGE);
    BOTH("fallocate, no length", SYS_fallocate, fallocate, fd, punch, 0L, 0L);
    BOTH("fallocate, bad mode", SYS_fallocate, fallocate, fd, 0x4000, 0L,
         PAGE);
    SAME("open O_TRUNC", EXACT, opened(RAW(SYS_open, path, O_RDWR | O_TRUNC)),
         opened(open(path, O_RDWR | O_TRUNC)));
    BOTH("open O_TRUNC of nothing", SYS_open, open, none, O_RDWR | O_TRUNC);
    BOTH("open, bad path", SYS_open, open, bad, O_RDWR | O_TRUNC);
    BOTH("open of a directory", SYS_open, open, "/", O_RDWR | O_TRUNC);
    BOTH("openat, bad directory", SYS_openat, openat, fd, "x",
         O_RDWR | O_CREAT | O_TRUNC, 0600);
    SAME("creat", EXACT, opened(RAW(SYS_creat, path, 0600)),
         opened(creat(path, 0600)));
    BOTH("creat of nothing", SYS_creat, creat, none, 0600);
}

int main(void)
{
    char block[2 * PAGE];
    int fd = memfd_create("errno", MFD_CLOEXEC);

    memset(block, 'A', PAGE);
    memset(block + PAGE, 'B', PAGE);
    if (fd < 0 || write(fd, block, sizeof block) != sizeof block) {
        perror("memfd");
        return 2;
    }
    test_munmap();
    test_madvise();
    test_mmap(fd);
    test_mremap();
    test_brk();
    test_shm();
    test_process_madvise();
    test_remap_file_pages(fd);
    test_syscall(fd);
    test_files(fd);
    return victim_end();
}
