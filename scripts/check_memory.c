/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows: anonymous memory, by the calls that are made for it. */
#include "check_memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BOTH = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS };
#define MIDDLE (4 * (size_t)PAGE_BYTES) /* pages 2 to 5 */

/* Linux 6.13 and later; Debian 12's headers do not name them. */
enum { ADVICE_GUARD_INSTALL = 102, ADVICE_GUARD_REMOVE = 103 };

/* Not where a huge page may begin: where a segment is attached over it that may
 * be of those, more is told. */
bool anonymous_setup(struct scene *s)
{
    s->addr = mmap(NULL, CHECK_BYTES, BOTH, ANON, -1, 0);
    if ((uintptr_t)page_of(s, 2) % HUGE_BYTES == 0)
        s->addr = mmap(NULL, CHECK_BYTES, BOTH, ANON, -1, 0);
    release_names(s, page_of(s, 2), MIDDLE);
    return done(s, s->addr != MAP_FAILED, "mmap");
}

bool shared_setup(struct scene *s)
{
    s->fd = memfd_create("lapse-check", MFD_CLOEXEC);
    if (s->fd < 0 || ftruncate(s->fd, 2 * CHECK_BYTES))
        return cannot(s, "memfd_create");
    s->addr = mmap(NULL, CHECK_BYTES, BOTH, MAP_SHARED, s->fd, 0);
    release_names(s, page_of(s, 2), MIDDLE);
    return done(s, s->addr != MAP_FAILED, "mmap");
}

bool munmap_release(struct scene *s)
{
    return done(s, !munmap(s->named, s->named_len), "munmap");
}

bool munmap_syscall_release(struct scene *s)
{
    return done(s, !syscall(SYS_munmap, s->named, s->named_len),
                "syscall(SYS_munmap)");
}

bool mmap_fixed_release(struct scene *s)
{
    return done(s, mmap(s->named, s->named_len, BOTH, ANON | MAP_FIXED, -1,
                        0) == s->named, "mmap");
}

bool mmap_syscall_release(struct scene *s)
{
    return done(s, syscall(SYS_mmap, s->named, s->named_len, BOTH,
                           ANON | MAP_FIXED, -1, 0) == (long)s->named,
                "syscall(SYS_mmap)");
}

bool mmap_noreplace_release(struct scene *s)
{
    char *at = mmap(s->named, s->named_len, BOTH, ANON | MAP_FIXED_NOREPLACE,
                    -1, 0);

    errno = 0;
    return done(s, at == MAP_FAILED, "MAP_FIXED_NOREPLACE replaced");
}

/* A place that nobody else gets meanwhile: as large as what comes there, so
 * that nothing of it is left. */
static char *reserve_place(size_t len)
{
    return mmap(NULL, len, PROT_NONE, ANON, -1, 0);
}

bool mremap_setup(struct scene *s)
{
    if (!anonymous_setup(s))
        return false;
    release_names(s, s->addr, CHECK_BYTES);
    s->other = reserve_place(CHECK_BYTES);
    return done(s, s->other != MAP_FAILED, "mmap");
}

bool mremap_fixed_release(struct scene *s)
{
    return done(s, mremap(s->addr, CHECK_BYTES, CHECK_BYTES,
                          MREMAP_MAYMOVE | MREMAP_FIXED,
                          s->other) != MAP_FAILED, "mremap");
}

/* It has no room to grow in, so it moves. */
bool mremap_grow_setup(struct scene *s)
{
    char *at = mmap(NULL, CHECK_BYTES + PAGE_BYTES, PROT_NONE, ANON, -1, 0);

    if (at == MAP_FAILED || mmap(at, CHECK_BYTES, BOTH, ANON | MAP_FIXED, -1,
                                 0) != at)
        return cannot(s, "mmap");
    s->addr = at;
    release_names(s, at, CHECK_BYTES);
    return true;
}

bool mremap_grow_release(struct scene *s)
{
    return done(s, mremap(s->addr, CHECK_BYTES, 2 * CHECK_BYTES,
                          MREMAP_MAYMOVE) != MAP_FAILED, "mremap");
}

bool mremap_shrink_release(struct scene *s)
{
    release_names(s, page_of(s, 3), CHECK_BYTES - 3 * PAGE_BYTES);
    return done(s, mremap(s->addr, CHECK_BYTES, 3 * PAGE_BYTES, 0) == s->addr,
                "mremap");
}

bool mremap_dontunmap_release(struct scene *s)
{
    return done(s, mremap(s->addr, CHECK_BYTES, CHECK_BYTES,
                          MREMAP_MAYMOVE | MREMAP_DONTUNMAP,
                          NULL) != MAP_FAILED, /* read: must be aligned */
                "mremap");
}

/* Something else lands on the watched range. */
bool mremap_target_setup(struct scene *s)
{
    s->other = mmap(NULL, MIDDLE, BOTH, ANON, -1, 0);
    return done(s, s->other != MAP_FAILED, "mmap") && anonymous_setup(s);
}

bool mremap_target_release(struct scene *s)
{
    return done(s, mremap(s->other, MIDDLE, MIDDLE,
                          MREMAP_MAYMOVE | MREMAP_FIXED, s->named) == s->named,
                "mremap");
}

/* The break is ours as long as we allocate nothing between. */
static bool at_break(struct scene *s, unsigned keep)
{
    uintptr_t now = (uintptr_t)sbrk(0);
    uintptr_t pad = -now & (PAGE_BYTES - 1);

    if (sbrk((intptr_t)(pad + CHECK_BYTES)) == (void *)-1)
        return cannot(s, "sbrk");
    s->addr = (char *)now + pad;
    release_names(s, page_of(s, keep), (CHECK_PAGES - keep) * PAGE_BYTES);
    return true;
}

bool brk_setup(struct scene *s)
{
    return at_break(s, 2);
}

bool sbrk_release(struct scene *s)
{
    return done(s, sbrk(-(intptr_t)s->named_len) != (void *)-1, "sbrk");
}

bool brk_release(struct scene *s)
{
    return done(s, !brk(s->named), "brk");
}

void brk_give_back(struct scene *s)
{
    if (brk(s->addr + CHECK_BYTES))
        give_back_by_mmap(s);
}

static bool advise(struct scene *s, int advice, const char *what)
{
    return done(s, !madvise(s->named, s->named_len, advice), what);
}

bool dontneed_release(struct scene *s)
{
    return advise(s, MADV_DONTNEED, "MADV_DONTNEED");
}

bool dontneed_syscall_release(struct scene *s)
{
    return done(s, !syscall(SYS_madvise, s->named, s->named_len,
                            MADV_DONTNEED), "syscall(SYS_madvise)");
}

bool locked_setup(struct scene *s)
{
    return anonymous_setup(s) && done(s, !mlock(s->addr, CHECK_BYTES), "mlock");
}

bool locked_release(struct scene *s)
{
    return advise(s, MADV_DONTNEED_LOCKED, "MADV_DONTNEED_LOCKED");
}

bool remove_release(struct scene *s)
{
    return advise(s, MADV_REMOVE, "MADV_REMOVE");
}

bool remove_other_setup(struct scene *s)
{
    if (!shared_setup(s))
        return false;
    s->other = mmap(NULL, CHECK_BYTES, BOTH, MAP_SHARED, s->fd, 0);
    return done(s, s->other != MAP_FAILED, "mmap");
}

bool remove_other_release(struct scene *s)
{
    return done(s, !madvise(s->other + 2 * PAGE_BYTES, MIDDLE, MADV_REMOVE),
                "MADV_REMOVE");
}

bool lazyfree_release(struct scene *s)
{
    return advise(s, MADV_FREE, "MADV_FREE");
}

bool guard_release(struct scene *s)
{
    return advise(s, ADVICE_GUARD_INSTALL, "MADV_GUARD_INSTALL");
}

void guard_give_back(struct scene *s)
{
    madvise(s->named, s->named_len, ADVICE_GUARD_REMOVE);
}

/* Over a hole: it does its work on both sides, and fails. */
bool partial_release(struct scene *s)
{
    int ret = munmap(page_of(s, 4), PAGE_BYTES);

    if (!ret)
        ret = madvise(s->named, s->named_len, MADV_DONTNEED);
    return done(s, ret && errno == ENOMEM, "madvise over a hole");
}

bool posix_madvise_release(struct scene *s)
{
    errno = posix_madvise(s->named, s->named_len, POSIX_MADV_DONTNEED);
    return done(s, !errno, "posix_madvise");
}

bool process_madvise_setup(struct scene *s)
{
    s->other_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    return done(s, s->other_fd >= 0, "pidfd_open") && anonymous_setup(s);
}

bool process_madvise_release(struct scene *s)
{
    struct iovec range = {s->named, s->named_len};

    return done(s, process_madvise(s->other_fd, &range, 1, MADV_DONTNEED,
                                   0) == (ssize_t)s->named_len,
                "process_madvise(MADV_DONTNEED)");
}

bool remap_file_release(struct scene *s)
{
    return done(s, !remap_file_pages(s->named, s->named_len, 0, CHECK_PAGES,
                                     0), "remap_file_pages");
}
