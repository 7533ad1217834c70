/* SPDX-License-Identifier: BSD-3-Clause */
/* Anonymous mappings, and what can be done to them. */
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "lapse.h"
#include "torture_rcache_blocks.h"

enum { ADVICE_GUARD_INSTALL = 102, ADVICE_GUARD_REMOVE = 103 };

char *make_map(struct block *b, uint64_t r)
{
    (void)r;
    return block_map(NULL, b->len, MAP_PRIVATE, -1);
}

enum rcache_way release_map(struct block *b, unsigned way)
{
    char *other;

    switch (way % 4) {
    case 0:
        if (!block_map(b->p, b->len, MAP_PRIVATE | MAP_FIXED, -1))
            break;
        return WAY_FIXED;
    case 1:
        other = block_map(NULL, b->len, MAP_PRIVATE, -1);
        if (other && mremap(other, b->len, b->len,
                            MREMAP_MAYMOVE | MREMAP_FIXED, b->p) == b->p)
            return WAY_MREMAP_ONTO;
        if (other)
            munmap(other, b->len);
        break;
    case 2:
        other = mremap(b->p, b->len, b->len,
                       MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
        if (other == MAP_FAILED && !way_refused(WAY_DONTUNMAP))
            break;
        munmap(other, b->len);
        return WAY_DONTUNMAP;
    }
    return block_unmap(b);
}

/* A system call of our own, as in a runtime that does not use libc. */
static long munmap_inline(void *addr, size_t len)
{
    long ret;

    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "0"(SYS_munmap), "D"(addr), "S"(len)
                     : "rcx", "r11", "memory");
    return ret;
}

enum rcache_way release_raw(struct block *b, unsigned way)
{
    lapse_release r;

    if (way % 2) {
        syscall(SYS_munmap, b->p, b->len);
        return block_gone(b, WAY_SYSCALL);
    }
    lapse_publish_begin(b->p, b->len, &r);
    munmap_inline(b->p, b->len);
    lapse_publish_end(&r);
    return block_gone(b, WAY_PUBLISH);
}

/* The last page cannot be dropped: it is locked. The rest is. By syscall(),
   since a sanitizer's mlock() does nothing. */
static bool advise_in_vain(struct block *b)
{
    char *last = b->p + b->len - PAGE;
    bool failed;

    if (b->len == PAGE)
        return false;
    if (syscall(SYS_mlock, last, PAGE))
        return way_refused(WAY_DONTNEED_FAILS);
    failed = madvise(b->p, b->len, MADV_DONTNEED) != 0;
    syscall(SYS_munlock, last, PAGE);
    if (!failed)
        rcache_trouble("madvise DONTNEED of a locked page did not fail", 0);
    return true;
}

static bool advise_oneself(struct block *b)
{
    struct iovec iov[2] = {{b->p, b->len / 2 / PAGE * PAGE},
                           {b->p + b->len / 2 / PAGE * PAGE, PAGE}};
    int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    ssize_t n = pidfd < 0 ? -1 : process_madvise(pidfd, iov, 2, MADV_DONTNEED,
                                                 0);

    if (n < 0)
        way_refused(WAY_PROCESS_MADVISE);
    if (pidfd >= 0)
        close(pidfd);
    return n >= 0;
}

/* And it can be used again. */
static bool guard(struct block *b)
{
    if (madvise(b->p, b->len, ADVICE_GUARD_INSTALL))
        return way_refused(WAY_GUARD);
    if (madvise(b->p, b->len, ADVICE_GUARD_REMOVE))
        rcache_trouble("madvise GUARD_REMOVE", -errno);
    return true;
}

static bool advise(struct block *b, int advice, enum rcache_way way)
{
    return madvise(b->p, b->len, advice) ? way_refused(way) : true;
}

enum rcache_way release_advised(struct block *b, unsigned way)
{
    size_t half = b->len / 2 / PAGE * PAGE;

    posix_madvise(b->p, b->len, POSIX_MADV_DONTNEED); /* not a release */
    switch (way % 8) {
    case 0:
        if (advise(b, MADV_DONTNEED, WAY_DONTNEED))
            return WAY_DONTNEED;
        break;
    case 1:
        if (!madvise(b->p + half, b->len - half, MADV_DONTNEED))
            return WAY_DONTNEED_HALF;
        break;
    case 2:
        if (advise(b, MADV_DONTNEED_LOCKED, WAY_DONTNEED_LOCKED))
            return WAY_DONTNEED_LOCKED;
        break;
    case 3:
        if (advise(b, MADV_FREE, WAY_ADVICE_FREE))
            return WAY_ADVICE_FREE;
        break;
    case 4:
        if (guard(b))
            return WAY_GUARD;
        break;
    case 5:
        if (way_open(WAY_PROCESS_MADVISE) && advise_oneself(b))
            return WAY_PROCESS_MADVISE;
        break;
    case 6:
        if (advise_in_vain(b))
            return WAY_DONTNEED_FAILS;
        break;
    }
    return block_unmap(b);
}

/* Where it leaves the address, another thread may be faster to get it. */
enum rcache_way release_moved(struct block *b, unsigned way)
{
    char *to;

    if (way % 3 == 0)
        return block_unmap(b);
    if (way % 3 == 1 && b->len > PAGE) {
        mremap(b->p, b->len, PAGE, 0);
        if (!block_map(b->p + PAGE, b->len - PAGE,
                       MAP_PRIVATE | MAP_FIXED_NOREPLACE, -1))
            b->len = PAGE;
        return WAY_MREMAP_SHRINK;
    }
    to = block_map(NULL, b->len, MAP_PRIVATE, -1);
    if (!to)
        return block_unmap(b);
    if (mremap(b->p, b->len, b->len, MREMAP_MAYMOVE | MREMAP_FIXED, to) !=
        to) {
        munmap(to, b->len);
        return block_unmap(b);
    }
    munmap(to, b->len);
    if (!block_map(b->p, b->len, MAP_PRIVATE | MAP_FIXED_NOREPLACE, -1))
        block_gone(b, WAY_MREMAP_AWAY);
    return WAY_MREMAP_AWAY;
}
