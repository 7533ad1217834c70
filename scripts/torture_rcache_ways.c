/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which ways of releasing memory torture rcache went, and how often. A way
 * that nobody goes tests nothing: it must have fired, or there is a reason
 * that is printed.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "torture.h"
#include "torture_rcache_ways.h"

/*
 * path: the row of lapse_coverage() that sees it; where that says that it
 * does not, a stale hit would be no fault of the cache. refusable: there are
 * kernels and file systems that do not have it.
 */
static const struct {
    const char *name, *path;
    bool refusable, foreign; /* foreign: not with a sanitizer, whose the
                                malloc is, and which refuses RTLD_DEEPBIND */
} row[WAYS] = {
    [WAY_FREE] = {"free", "munmap", false, true},
    [WAY_FREE_TRIM] = {"free, trim", "madvise", false, true},
    [WAY_REALLOC] = {"realloc", "mremap", false, true},
    [WAY_BRK] = {"brk", "brk", false, false},
    [WAY_MUNMAP] = {"munmap", "munmap", false, false},
    [WAY_SYSCALL] = {"syscall(SYS_munmap)", "syscall", false, false},
    [WAY_PUBLISH] = {"munmap inline, published", "munmap", false, false},
    [WAY_FIXED] = {"mmap MAP_FIXED", "mmap", false, false},
    [WAY_DONTNEED] = {"madvise DONTNEED", "madvise", false, false},
    [WAY_DONTNEED_HALF] = {"madvise DONTNEED of half", "madvise", false,
                           false},
    [WAY_DONTNEED_LOCKED] = {"madvise DONTNEED_LOCKED", "madvise", true,
                             false},
    [WAY_DONTNEED_FAILS] = {"madvise that fails half-way", "madvise", true,
                            false},
    [WAY_ADVICE_FREE] = {"madvise FREE", "madvise", false, false},
    [WAY_GUARD] = {"madvise GUARD_INSTALL", "madvise", true, false},
    [WAY_PROCESS_MADVISE] = {"process_madvise", "process_madvise", true,
                             false},
    [WAY_MREMAP_ONTO] = {"mremap FIXED onto it", "mremap", false, false},
    [WAY_MREMAP_SHRINK] = {"mremap shrinks", "mremap", false, false},
    [WAY_MREMAP_AWAY] = {"mremap away", "mremap", false, false},
    [WAY_DONTUNMAP] = {"mremap DONTUNMAP", "mremap", true, false},
    [WAY_REMOVE] = {"madvise REMOVE", "madvise", false, false},
    [WAY_PUNCH] = {"fallocate PUNCH_HOLE", "fallocate", true, false},
    [WAY_FTRUNCATE] = {"ftruncate", "ftruncate", false, false},
    [WAY_TRUNCATE] = {"truncate", "truncate", false, false},
    [WAY_OPEN] = {"open O_TRUNC", "open", false, false},
    [WAY_REMAP_FILE] = {"remap_file_pages", "remap_file_pages", true, false},
    [WAY_COLLAPSE] = {"fallocate COLLAPSE", "fallocate", true, false},
    [WAY_ZERO] = {"fallocate ZERO", "fallocate", true, false},
    [WAY_SHMDT] = {"shmdt", "shmdt", false, false},
    [WAY_SHM_REMAP] = {"shmat SHM_REMAP", "shmat", false, false},
    [WAY_DLCLOSE] = {"dlclose", "munmap", false, false},
    [WAY_DEEPBIND] = {"madvise in RTLD_DEEPBIND", "madvise", false, true},
    [WAY_NAMESPACE_FREE] = {"free in a dlmopen", "dlmopen", false, true},
    [WAY_NAMESPACE_CLOSE] = {"dlclose of a dlmopen", "dlmopen", false, true},
    [WAY_STACK_KEPT] = {"stack of a joined thread", "madvise", false, true},
    [WAY_STACK_UNMAPPED] = {"the same, unmapped", "munmap", false, true},
};

static struct rcache_ways *ways;

const char *way_name(enum rcache_way way)
{
    return row[way].name;
}

/* One of libc's or of ld.so's that is not seen is one too many. A dlmopen has
   a row only when there was one, and its libc is patched like the first. */
static bool covered(const char *path)
{
    struct lapse_coverage rows[256];
    int n = lapse_coverage(rows, 256);

    for (int i = 0; i < n && i < 256; i++)
        if (!strcmp(rows[i].path, path) &&
            rows[i].mechanism == LAPSE_UNCOVERED)
            return false;
    return true;
}

void ways_start(struct rcache_ways *board)
{
    ways = board;
    for (int i = 0; i < WAYS; i++) {
        ways->closed[i] = !covered(row[i].path);
        ways->foreign[i] = TORTURE_OWN_MALLOC && row[i].foreign;
    }
}

bool way_open(enum rcache_way way)
{
    return !ways->closed[way] && !ways->foreign[way];
}

void way_fired(enum rcache_way way, uint64_t times)
{
    atomic_fetch_add_explicit(&ways->fired[way], times, memory_order_relaxed);
}

bool way_refused(enum rcache_way way)
{
    atomic_store_explicit(&ways->refused[way], errno, memory_order_relaxed);
    return false;
}

/* NULL: there is none. */
static const char *reason(const struct rcache_ways *w, int i)
{
    if (w->foreign[i])
        return "not with a sanitizer";
    if (w->closed[i])
        return "the library does not see it here";
    if (row[i].refusable && w->refused[i])
        return strerror(w->refused[i]);
    return NULL;
}

bool ways_judge(struct rcache_ways *w)
{
    bool all = true;

    printf("  released by:\n");
    for (int i = 0; i < WAYS; i++) {
        uint64_t fired = torture_get(&w->fired[i]);
        const char *why = fired ? NULL : reason(w, i);

        if (fired)
            printf("    %9lu %s\n", fired, row[i].name);
        else
            printf("    never     %s: %s\n", row[i].name,
                   why ? why : "nobody came by");
        all &= fired || why;
    }
    return all;
}
