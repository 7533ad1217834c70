/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What each release call releases, and the telling of it around the call. In
 * no state of the process may anything here lock, allocate, wait or fault
 * (G4): memory of the caller is only read through the kernel.
 */
#include "hooks/hook.h"

#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#include "hooks/account.h"
#include "hooks/advice.h"
#include "hooks/backstop.h"
#include "hooks/brk.h"
#include "hooks/file.h"
#include "hooks/file_range.h"
#include "hooks/huge_range.h"
#include "hooks/shm_range.h"
#include "shim/meet.h"
#include "shim/release.h"
#include "shim/sys.h"

/* All bodies have one type; most calls take fewer arguments. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

_Atomic uintptr_t hook_brk;

static unsigned reason_of(const uintptr_t *stack, unsigned path,
                          unsigned reason)
{
    return caller_is_loader(stack, path) ? LAPSE_REASON_UNLOAD : reason;
}

/* A call that releases nothing: counted, and made. */
static void pass_begin(struct release *r, unsigned path)
{
    release_claim(r, RANGE_NOTHING);
    release_count(r, path, 0, 0, INSIDE_NOTHING);
}

/* What lies there after the call is new, and not registered. */
static bool replaces(unsigned path)
{
    return path == LAPSE_PATH_MMAP || path == LAPSE_PATH_SHMAT;
}

/* The program gets this as new memory, if the call did not fail. */
static void mapped(long ret, size_t len, enum huge_of of, long what)
{
    uintptr_t start, end;

    if (ret <= 0 ||
        atomic_load_explicit(&backstop_fd, memory_order_relaxed) < 0 ||
        !range_of_call((uintptr_t)ret, len, &start, &end))
        return;
    end = huge_end(start, end, of, what);
    if (backstop_cares(start, end))
        backstop_mapped(start, end);
}

/* A part of some file, maybe, is there now, if the call did not fail. */
static void mapped_file(long ret, size_t len)
{
    uintptr_t start, end;

    if (__builtin_expect(file_wanted(), 0) && ret > 0 &&
        range_of_call((uintptr_t)ret, len, &start, &end))
        meet_files(start, end);
}

/* What the kernel adds to the range that was asked for; see huge_range.h. */
struct tail {
    struct release r;
    bool is;
};

static void tail_begin(struct tail *t, uintptr_t end, uintptr_t most,
                       unsigned reason)
{
    t->is = most > end;
    if (__builtin_expect(t->is, 0))
        release_begin(&t->r, end, most, reason);
}

static void tail_end(struct tail *t)
{
    if (__builtin_expect(t->is, 0))
        release_end(&t->r);
}

/* The usual case: one range, known before. */
#define AROUND(r, start, end, path, reason, stack, call)                     \
    do {                                                                      \
        /* outside of the hull nothing is registered */                       \
        bool lifted_ = release_begin(&(r), start, end, reason);               \
        account(&(r), path, start, end, stack);                               \
        lifted_ = lifted_ && backstop_before(start, end);                     \
        ret = (call);                                                         \
        if (lifted_ || replaces(path))                                        \
            backstop_after(start, end);                                       \
        release_end(&(r));                                                    \
    } while (0)
#define PASS(r, path, call)                                                   \
    do {                                                                      \
        pass_begin(&(r), path);                                               \
        ret = (call);                                                         \
        release_end(&(r));                                                    \
    } while (0)

static long hook_munmap(long a0, long a1, long a2, long a3, long a4, long a5,
                        const uintptr_t *stack)
{
    struct release r;
    uintptr_t start, end;
    long ret;

    if (range_of_call((uintptr_t)a0, (size_t)a1, &start, &end))
        AROUND(r, start, end, LAPSE_PATH_MUNMAP,
               reason_of(stack, LAPSE_PATH_MUNMAP, LAPSE_REASON_MUNMAP),
               stack, sys_call3(SYS_munmap, a0, a1, a2));
    else
        PASS(r, LAPSE_PATH_MUNMAP,
             sys_call3(SYS_munmap, a0, a1, a2));
    return ret;
}

static enum huge_of huge_of_mmap(long flags)
{
    if (!(flags & MAP_ANONYMOUS))
        return HUGE_FILE;
    return flags & MAP_HUGETLB ? HUGE_IS : HUGE_NEVER;
}

static long hook_mmap(long a0, long a1, long a2, long a3, long a4, long a5,
                      const uintptr_t *stack)
{
    struct tail tail;
    struct release r;
    uintptr_t start, end;
    long ret;

    /* NOREPLACE, with or without FIXED, fails rather than replace. */
    if ((a3 & (MAP_FIXED | MAP_FIXED_NOREPLACE)) == MAP_FIXED &&
        range_of_call((uintptr_t)a0, (size_t)a1, &start, &end)) {
        tail_begin(&tail, end, huge_end(start, end, huge_of_mmap(a3), a4),
                   LAPSE_REASON_REPLACE);
        AROUND(r, start, end, LAPSE_PATH_MMAP, LAPSE_REASON_REPLACE, stack,
               sys_call6(SYS_mmap, a0, a1, a2, a3, a4, a5));
        tail_end(&tail);
    } else
        PASS(r, LAPSE_PATH_MMAP,
             sys_call6(SYS_mmap, a0, a1, a2, a3, a4, a5));
    if ((a3 & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != MAP_FIXED)
        mapped(ret, (size_t)a1, huge_of_mmap(a3), a4);
    if (!(a3 & MAP_ANONYMOUS))
        mapped_file(ret, (size_t)a1);
    return ret;
}

/*
 * The old range goes if it may move, its tail if it shrinks in place, and
 * with FIXED whatever was at the target. It may grow in place after all: the
 * kernel decides that later, so this is a false alarm then.
 */
static bool mremap_old(long addr, long old_len, long new_len, long flags,
                       uintptr_t *start, uintptr_t *end)
{
    uintptr_t keep;

    if (!new_len || !range_of_call((uintptr_t)addr, (size_t)old_len, start,
                                   end))
        return false;
    keep = page_up((size_t)new_len);
    if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP))
        return true;
    if (keep < (size_t)new_len) /* wraps: fails */
        return false;
    if (keep < *end - *start) {
        *start += keep;
        return true;
    }
    return keep > *end - *start && (flags & MREMAP_MAYMOVE);
}

/* What grew in place was nobody's before; so was all of where it moved to. A
 * mapping takes its registration along: that of pages not watched ends. */
static void moved(long addr, long old_len, long ret, long new_len)
{
    size_t kept = ret == addr ? page_up((size_t)old_len) : 0;
    uintptr_t start, end;

    if ((size_t)new_len <= kept ||
        !range_of_call((uintptr_t)ret, (size_t)new_len, &start, &end) ||
        !backstop_cares(start, end))
        return;
    end = huge_end(start, end, HUGE_MAPPED, ret);
    backstop_mapped(start + kept, end);
    backstop_fit_all(start, end);
}

static void old_tail_begin(struct tail *t, long addr, long old_len)
{
    uintptr_t start, end;

    t->is = false;
    if (range_of_call((uintptr_t)addr, (size_t)old_len, &start, &end))
        tail_begin(t, end, huge_end(start, end, HUGE_MAPPED, addr),
                   LAPSE_REASON_MREMAP);
}

static long hook_mremap(long a0, long a1, long a2, long a3, long a4, long a5,
                        const uintptr_t *stack)
{
    struct release old, target;
    struct tail tail;
    uintptr_t start, end, to, to_end;
    bool has_old = mremap_old(a0, a1, a2, a3, &start, &end);
    bool has_target =
        (a3 & MREMAP_FIXED) &&
        range_of_call((uintptr_t)a4, (size_t)a2, &to, &to_end);
    long ret;

    if (has_target) {
        to_end = huge_end(to, to_end, HUGE_MAPPED, a0);
        release_begin(&target, to, to_end, LAPSE_REASON_REPLACE);
        if (__builtin_expect(lapse_observing, 0))
            account_noted(&target, LAPSE_PATH_MREMAP, to, to_end, stack);
        backstop_before(to, to_end);
    }
    old_tail_begin(&tail, a0, has_old ? a1 : 0);
    if (has_old)
        AROUND(old, start, end, LAPSE_PATH_MREMAP, LAPSE_REASON_MREMAP, stack,
               sys_call6(SYS_mremap, a0, a1, a2, a3, a4, a5));
    else
        PASS(old, LAPSE_PATH_MREMAP,
             sys_call6(SYS_mremap, a0, a1, a2, a3, a4, a5));
    if (ret >= 0 || ret < -4095)
        moved(a0, a1, ret, a2);
    else if (has_target)
        backstop_after(to, to_end);
    tail_end(&tail);
    if (has_target)
        release_end(&target);
    mapped_file(ret, (size_t)a2);
    return ret;
}

static long hook_brk_call(long a0, long a1, long a2, long a3, long a4,
                          long a5, const uintptr_t *stack)
{
    struct release r;
    /* relaxed: sbrk is not thread-safe, its callers have a lock of theirs;
     * 0 as long as no break was seen */
    uintptr_t now = atomic_load_explicit(&hook_brk, memory_order_relaxed);
    uintptr_t start = page_up((uintptr_t)a0), end = page_up(now);
    long ret;

    if (a0 && (uintptr_t)a0 < now && start < end)
        AROUND(r, start, end, LAPSE_PATH_BRK, LAPSE_REASON_BRK, stack,
               sys_call3(SYS_brk, a0, a1, a2));
    else
        PASS(r, LAPSE_PATH_BRK, sys_call3(SYS_brk, a0, a1, a2));
    atomic_store_explicit(&hook_brk, (uintptr_t)ret, memory_order_relaxed);
    if (now && (uintptr_t)ret > now)
        mapped((long)page_up(now), (size_t)((uintptr_t)ret - page_up(now)),
               HUGE_NEVER, 0);
    return ret;
}

static long hook_madvise(long a0, long a1, long a2, long a3, long a4, long a5,
                         const uintptr_t *stack)
{
    struct release r;
    uintptr_t start, end;
    long ret;

    if (!advice_releases((int)a2) ||
        !range_of_call((uintptr_t)a0, (size_t)a1, &start, &end))
        PASS(r, LAPSE_PATH_MADVISE, sys_call3(SYS_madvise, a0, a1, a2));
    else if (__builtin_expect((int)a2 == MADV_REMOVE, 0))
        ret = hook_remove(a0, a1, a2, 0, 0, 0, stack);
    else
        AROUND(r, start, end, LAPSE_PATH_MADVISE, LAPSE_REASON_MADVISE, stack,
               sys_call3(SYS_madvise, a0, a1, a2)); /* ld.so makes none */
    return ret;
}

static long hook_shmdt(long a0, long a1, long a2, long a3, long a4, long a5,
                       const uintptr_t *stack)
{
    struct release r;
    uintptr_t start = (uintptr_t)a0, end;
    long ret;

    if (!(start & (PAGE_SIZE - 1)) && start < USER_END) {
        end = shm_attached_end(start);
        AROUND(r, start, end, LAPSE_PATH_SHMDT, LAPSE_REASON_SHMDT, stack,
               sys_call3(SYS_shmdt, a0, a1, a2));
    } else {
        PASS(r, LAPSE_PATH_SHMDT,
             sys_call3(SYS_shmdt, a0, a1, a2));
    }
    return ret;
}

static long hook_shmat(long a0, long a1, long a2, long a3, long a4, long a5,
                       const uintptr_t *stack)
{
    struct release r;
    uintptr_t start, end;
    uintptr_t at = (a2 & SHM_RND) ? page_down((uintptr_t)a1) : (uintptr_t)a1;
    long ret;

    if ((a2 & SHM_REMAP) && at &&
        range_of_call(at, shm_segment_size((int)a0), &start, &end)) {
        /* which kind a segment is of, nobody says */
        end = huge_end(start, end, HUGE_IS, 0);
        AROUND(r, start, end, LAPSE_PATH_SHMAT, LAPSE_REASON_REPLACE, stack,
               sys_call3(SYS_shmat, a0, a1, a2));
    } else
        PASS(r, LAPSE_PATH_SHMAT,
             sys_call3(SYS_shmat, a0, a1, a2));
    if (!(a2 & SHM_REMAP) &&
        atomic_load_explicit(&backstop_fd, memory_order_relaxed) >= 0)
        mapped(ret, shm_segment_size((int)a0), HUGE_MAPPED, ret);
    return ret;
}

static long hook_remap_file_pages(long a0, long a1, long a2, long a3, long a4,
                                  long a5, const uintptr_t *stack)
{
    struct release r;
    uintptr_t start, end;
    long ret;

    if (range_of_call(page_down((uintptr_t)a0), page_down((size_t)a1), &start,
                      &end))
        AROUND(r, start, end, LAPSE_PATH_REMAP_FILE_PAGES,
               LAPSE_REASON_REPLACE, stack,
               sys_call6(SYS_remap_file_pages, a0, a1, a2, a3, a4, a5));
    else
        PASS(r, LAPSE_PATH_REMAP_FILE_PAGES,
             sys_call6(SYS_remap_file_pages, a0, a1, a2, a3, a4, a5));
    if (!ret)
        mapped_file((long)page_down((uintptr_t)a0), (size_t)a1);
    return ret;
}

#define HOOK(call, path, body) [path] = {#call, SYS_##call, path, body}

const struct hook lapse_hooks[HOOK_COUNT] = {
    HOOK(munmap, LAPSE_PATH_MUNMAP, hook_munmap),
    HOOK(mmap, LAPSE_PATH_MMAP, hook_mmap),
    HOOK(mremap, LAPSE_PATH_MREMAP, hook_mremap),
    HOOK(brk, LAPSE_PATH_BRK, hook_brk_call),
    HOOK(madvise, LAPSE_PATH_MADVISE, hook_madvise),
    HOOK(shmdt, LAPSE_PATH_SHMDT, hook_shmdt),
    HOOK(shmat, LAPSE_PATH_SHMAT, hook_shmat),
    HOOK(process_madvise, LAPSE_PATH_PROCESS_MADVISE, hook_process_madvise),
    HOOK(remap_file_pages, LAPSE_PATH_REMAP_FILE_PAGES,
         hook_remap_file_pages),
    HOOK(fallocate, LAPSE_PATH_FALLOCATE, hook_fallocate),
    HOOK(ftruncate, LAPSE_PATH_FTRUNCATE, hook_ftruncate),
    HOOK(truncate, LAPSE_PATH_TRUNCATE, hook_truncate),
    [HOOK_OPEN] = {"open", SYS_open, LAPSE_PATH_OPEN, hook_open},
    [HOOK_OPENAT] = {"openat", SYS_openat, LAPSE_PATH_OPEN, hook_openat},
    [HOOK_CREAT] = {"creat", SYS_creat, LAPSE_PATH_OPEN, hook_creat},
    [HOOK_OPENAT2] = {"openat2", SYS_openat2, LAPSE_PATH_OPEN, hook_openat2},
};
