/* SPDX-License-Identifier: BSD-3-Clause */
/* Can torture rcache run here? A fixed buffer as large as all that it has in
   use at once is registered and written from, as its workers do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include "rcache/lapse_rcache_backends.h"
#include "ring.h"
#include "torture_rcache.h"

static int try_ring(struct ring *ring, void *addr, size_t len, int file)
{
    struct iovec iov = {addr, len};
    int n;

    if (syscall(SYS_io_uring_register, ring->fd, IORING_REGISTER_BUFFERS,
                &iov, 1))
        return -errno;
    n = ring_do(ring, IORING_OP_WRITE_FIXED, file, addr, 4096, 0, 0);
    /* At once, or it still counts when the next one begins. */
    syscall(SYS_io_uring_register, ring->fd, IORING_UNREGISTER_BUFFERS, NULL,
            0);
    return n < 0 ? n : 0;
}

/* The table of the cache, which older kernels do not have. */
static int try_table(struct ring *ring)
{
    struct lapse_rcache_ops ops;
    int err = lapse_rcache_uring_open(ring->fd, 16, &ops);

    if (!err)
        lapse_rcache_uring_close(&ops);
    return err;
}

static int try_all(size_t len)
{
    struct ring ring;
    int file, err = ring_open(&ring, 8);
    void *p;

    if (err)
        return err;
    file = memfd_create("torture", MFD_CLOEXEC);
    p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
             -1, 0);
    err = file < 0 || p == MAP_FAILED ? -errno
                                      : try_ring(&ring, p, len, file);
    if (!err)
        err = try_table(&ring);
    munmap(p, len);
    close(file);
    ring_close(&ring);
    return err;
}

static void explain(int err, size_t len)
{
    struct rlimit limit = {0};

    switch (err) {
    case -ENOSYS:
        fputs("this kernel has no io_uring, or a seccomp filter (of a "
              "container?) hides it", stderr);
        break;
    case -EPERM:
    case -EACCES:
        fputs("io_uring is forbidden: by sysctl kernel.io_uring_disabled, or "
              "by a seccomp filter (of a container?)", stderr);
        break;
    case -EINVAL:
        fputs("this kernel has no sparse tables of fixed buffers; Linux 5.19 "
              "has", stderr);
        break;
    default:
        getrlimit(RLIMIT_MEMLOCK, &limit);
        fprintf(stderr, "%zu KiB of memory cannot be pinned, and "
                "RLIMIT_MEMLOCK is %lu KiB: raise it (ulimit -l), take fewer "
                "--threads, or be root", len >> 10,
                (unsigned long)limit.rlim_cur >> 10);
    }
    fputc('\n', stderr);
}

int torture_rcache_probe(const struct torture_options *o)
{
    size_t each = rcache_merge_bytes(o) + ((size_t)512 << 10);
    int err = try_all(o->threads * each);

    if (!err)
        return 0;
    if (err != -ENOSYS && err != -EPERM && err != -EACCES && err != -EINVAL &&
        err != -ENOMEM) {
        fprintf(stderr, "torture: io_uring: %s\n", strerror(-err));
        return 1;
    }
    fputs("torture: skipped: ", stderr);
    explain(err, o->threads * each);
    return 77;
}
