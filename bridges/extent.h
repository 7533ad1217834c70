/* SPDX-License-Identifier: BSD-3-Clause */
/* The extent hooks that stand before those of an arena. */
#ifndef LAPSE_EXTENT_H
#define LAPSE_EXTENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "bridges/kept.h"

/* The layout is jemalloc's public one (jemalloc(3), "arena.<i>.extent_hooks"),
 * declared here since nothing of jemalloc is needed to build. */
struct hooks;
typedef bool range_hook(struct hooks *, void *addr, size_t size, size_t offset,
                        size_t length, unsigned arena);
struct hooks {
    void *(*alloc)(struct hooks *, void *addr, size_t size, size_t alignment,
                   bool *zero, bool *commit, unsigned arena);
    bool (*dalloc)(struct hooks *, void *addr, size_t size, bool committed,
                   unsigned arena);
    void (*destroy)(struct hooks *, void *addr, size_t size, bool committed,
                    unsigned arena);
    range_hook *commit, *decommit, *purge_lazy, *purge_forced;
    bool (*split)(struct hooks *, void *addr, size_t size, size_t first,
                  size_t second, bool committed, unsigned arena);
    bool (*merge)(struct hooks *, void *addr, size_t size, void *second,
                  size_t second_size, bool committed, unsigned arena);
};

/* What stands before one set of hooks of one arena; lives for ever. */
struct adapter {
    struct hooks hooks; /* first: jemalloc hands us a pointer to it */
    struct hooks *before;
    unsigned arena;
    /* Those before us have decommitted something. If not (jemalloc's own do
     * not where the kernel overcommits), all that is decommitted is ours, and
     * what we gave back need not be remembered. */
    atomic_bool decommits;
};

/* Fill in the hooks of a new adapter. */
void extent_adapt(struct adapter *a, struct hooks *before, unsigned arena);
/* Are these hooks ours? */
bool extent_adapted(const struct hooks *h);

/* Gives back what is kept and unwatched, in all arenas. */
size_t extent_purge(void);

/* relaxed: counters */
extern _Atomic uint64_t extents_refused, extents_unkept;
/* All there are, in the order of their making. */
extern struct adapter extent_adapters[KEPT_OWNERS];

#endif
