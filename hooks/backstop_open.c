/* SPDX-License-Identifier: BSD-3-Clause */
#include "hooks/backstop_open.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "hooks/coverage.h"
#include "shim/sys.h"

/* newer than Debian 12's headers */
#define FEATURE_WP_ASYNC ((uint64_t)1 << 15)
#define FEATURES_NEEDED                                                      \
    (UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE |                  \
     UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_PAGEFAULT_FLAG_WP)
#define FEATURES_LIKED (UFFD_FEATURE_WP_HUGETLBFS_SHMEM | FEATURE_WP_ASYNC)

/* Out of the way of programs that expect the lowest ones. */
#define FD_FROM 1000

bool backstop_is_ours(int fd)
{
    struct uffdio_range nothing = {0, 0};

    return sys(SYS_ioctl, fd, UFFDIO_UNREGISTER, &nothing) == -EINVAL;
}

static long open_with(uint64_t want, uint64_t *has)
{
    struct uffdio_api api = {.api = UFFD_API, .features = want};
    long err, fd = sys(SYS_userfaultfd,
                       O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

    if (fd < 0)
        return fd;
    err = sys(SYS_ioctl, fd, UFFDIO_API, &api);
    *has = api.features;
    if (!err)
        return fd;
    sys(SYS_close, fd);
    return err;
}

/* -errno */
static long open_low(void)
{
    uint64_t has;
    long fd = open_with(0, &has); /* to learn what there is */

    if (fd < 0)
        return fd;
    sys(SYS_close, fd);
    if ((has & FEATURES_NEEDED) != FEATURES_NEEDED)
        return -EOPNOTSUPP;
    return open_with(FEATURES_NEEDED | (has & FEATURES_LIKED), &has);
}

long backstop_open(void)
{
    struct rlimit limit = {0};
    long low = open_low(), high, from = FD_FROM;

    if (low < 0)
        return low;
    sys(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit);
    if (limit.rlim_cur < FD_FROM + 64)
        from = limit.rlim_cur > 128 ? (long)limit.rlim_cur - 64 : 0;
    high = sys(SYS_fcntl, low, F_DUPFD_CLOEXEC, from);
    if (high < 0)
        return low;
    sys(SYS_close, low);
    return high;
}

#define LEFT_INLINE                                                          \
    "in watched ranges; not shmdt, SHM_REMAP, remap_file_pages, "            \
    "MADV_GUARD_INSTALL, nor holes punched in files"
#define LEFT_RING                                                            \
    "IORING_OP_MADVISE in watched ranges; not IORING_OP_FALLOCATE, "         \
    "IORING_OP_FTRUNCATE"
#define BUT "; some that are watched the kernel could not register"
#define REFUSED "the kernel refuses userfaultfd (LAPSE_BACKSTOP=uffd)"
#define NO_THREAD "no thread can be made for userfaultfd (LAPSE_BACKSTOP=uffd)"

void backstop_cover(enum backstop_extent extent)
{
    static const char *const left[][2] = {
        {LEFT_INLINE, LEFT_RING},
        {LEFT_INLINE BUT, LEFT_RING BUT},
        {REFUSED, REFUSED},
        {NO_THREAD, NO_THREAD},
    };
    static _Atomic uint32_t least;
    uint32_t seen = atomic_load_explicit(&least, memory_order_seq_cst);
    enum lapse_mechanism how;

    while (seen < extent && !atomic_compare_exchange_weak_explicit(
                                &least, &seen, extent, memory_order_seq_cst,
                                memory_order_seq_cst))
        ;
    /* Who finds only now that a mapping could not be registered, as all was
     * refused meanwhile, must not leave the rows saying less than that. */
    do {
        seen = atomic_load_explicit(&least, memory_order_seq_cst);
        how = seen >= BACKSTOP_REFUSED ? LAPSE_UNCOVERED : LAPSE_KERNEL;
        coverage_set("inline system calls", "any code but libc and ld.so", how,
                     left[seen][0]);
        coverage_set("io_uring", "the kernel", how, left[seen][1]);
        atomic_thread_fence(memory_order_seq_cst);
    } while (seen != atomic_load_explicit(&least, memory_order_seq_cst));
}

uint64_t backstop_mappings_max(void)
{
    char text[32];
    uint64_t max = 0;
    long fd = sys(SYS_openat, AT_FDCWD, "/proc/sys/vm/max_map_count",
                  O_RDONLY | O_CLOEXEC);
    long n = fd < 0 ? 0 : sys(SYS_read, fd, text, sizeof(text));

    for (long i = 0; i < n && text[i] >= '0' && text[i] <= '9'; i++)
        max = max * 10 + (uint64_t)(text[i] - '0');
    if (fd >= 0)
        sys(SYS_close, fd);
    return max ? max : 65530;
}
