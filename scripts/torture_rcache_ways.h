/* SPDX-License-Identifier: BSD-3-Clause */
/* The ways in which memory goes in torture rcache (DESIGN 7), counted. */
#ifndef LAPSE_TORTURE_RCACHE_WAYS_H
#define LAPSE_TORTURE_RCACHE_WAYS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum rcache_way {
    WAY_FREE,
    WAY_FREE_TRIM,
    WAY_REALLOC,
    WAY_BRK,
    WAY_MUNMAP,
    WAY_SYSCALL,
    WAY_PUBLISH,
    WAY_FIXED,
    WAY_DONTNEED,
    WAY_DONTNEED_HALF,
    WAY_DONTNEED_LOCKED,
    WAY_DONTNEED_FAILS,
    WAY_ADVICE_FREE,
    WAY_GUARD,
    WAY_PROCESS_MADVISE,
    WAY_MREMAP_ONTO,
    WAY_MREMAP_SHRINK,
    WAY_MREMAP_AWAY,
    WAY_DONTUNMAP,
    WAY_REMOVE,
    WAY_PUNCH,
    WAY_FTRUNCATE,
    WAY_TRUNCATE,
    WAY_OPEN,
    WAY_REMAP_FILE,
    WAY_COLLAPSE,
    WAY_ZERO,
    WAY_SHMDT,
    WAY_SHM_REMAP,
    WAY_DLCLOSE,
    WAY_DEEPBIND,
    WAY_NAMESPACE_FREE,
    WAY_NAMESPACE_CLOSE,
    WAY_STACK_KEPT,
    WAY_STACK_UNMAPPED,
    WAYS
};

/* Written by the child, judged by the parent. */
struct rcache_ways {
    _Atomic uint64_t fired[WAYS];
    _Atomic int refused[WAYS];   /* the kernel's errno */
    _Atomic bool closed[WAYS];   /* not tried: the library does not see it */
    _Atomic bool foreign[WAYS];  /* not tried: there is a sanitizer */
};

const char *way_name(enum rcache_way way);
/* In the child: which ways this process has. */
void ways_start(struct rcache_ways *ways);
/* Is it to be tried? */
bool way_open(enum rcache_way way);
void way_fired(enum rcache_way way, uint64_t times);
/* It did not work, errno says why. Returns false. */
bool way_refused(enum rcache_way way);

/* In the parent: print all; false when one that there is never fired. */
bool ways_judge(struct rcache_ways *ways);

#endif
