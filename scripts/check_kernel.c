/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows: ways into the kernel that pass no site. */
#include "check_kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "check_memory.h"
#include "uring.h"

enum { PUNCH = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE };

/* As Go and static code do it: nothing of libc is on the way. */
static long inline_call(long nr, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long ret;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;

    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8),
                       "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
#else
#error "how does this processor enter the kernel?"
#endif
}

static bool returned(struct scene *s, long ret, const char *what)
{
    errno = ret < 0 ? (int)-ret : 0;
    return done(s, ret >= 0, what);
}

bool inline_munmap_release(struct scene *s)
{
    return returned(s, inline_call(SYS_munmap, (long)s->named,
                                   (long)s->named_len, 0, 0, 0, 0), "munmap");
}

bool inline_madvise_release(struct scene *s)
{
    return returned(s, inline_call(SYS_madvise, (long)s->named,
                                   (long)s->named_len, MADV_DONTNEED, 0, 0, 0),
                    "madvise");
}

bool inline_mmap_release(struct scene *s)
{
    long ret = inline_call(SYS_mmap, (long)s->named, (long)s->named_len,
                           PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

    return returned(s, ret == (long)s->named ? 0 : ret, "mmap");
}

bool inline_mremap_release(struct scene *s)
{
    long ret = inline_call(SYS_mremap, (long)s->addr, CHECK_BYTES, CHECK_BYTES,
                           MREMAP_MAYMOVE | MREMAP_FIXED, (long)s->other, 0);

    return returned(s, ret == (long)s->other ? 0 : ret, "mremap");
}

bool inline_shmdt_release(struct scene *s)
{
    return returned(s, inline_call(SYS_shmdt, (long)s->addr, 0, 0, 0, 0, 0),
                    "shmdt");
}

bool inline_punch_release(struct scene *s)
{
    return returned(s, inline_call(SYS_fallocate, s->fd, PUNCH,
                                   s->named - s->addr, (long)s->named_len, 0,
                                   0), "fallocate");
}

static struct uring ring; /* of the release, not the oracle's */

static bool ring_setup(struct scene *s)
{
    return returned(s, uring_open(&ring), "io_uring_setup");
}

bool uring_anonymous_setup(struct scene *s)
{
    return ring_setup(s) && anonymous_setup(s);
}

bool uring_shared_setup(struct scene *s)
{
    return ring_setup(s) && shared_setup(s);
}

bool uring_madvise_release(struct scene *s)
{
    struct io_uring_sqe sqe = {
        .opcode = IORING_OP_MADVISE,
        .fd = -1,
        .addr = (uintptr_t)s->named,
        .len = (uint32_t)s->named_len,
        .fadvise_advice = MADV_DONTNEED,
    };

    return returned(s, uring_do(&ring, &sqe), "IORING_OP_MADVISE");
}

bool uring_fallocate_release(struct scene *s)
{
    struct io_uring_sqe sqe = {
        .opcode = IORING_OP_FALLOCATE,
        .fd = s->fd,
        .off = (uint64_t)(s->named - s->addr),
        .len = PUNCH,
        .addr = s->named_len, /* so it is: the length is there */
    };

    return returned(s, uring_do(&ring, &sqe), "IORING_OP_FALLOCATE");
}
