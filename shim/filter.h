/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The filter: which pages a subscriber watches, exactly, by page.
 *
 * A radix tree of four levels, 512 ways each, like a page table: the root
 * spans 2^48 bytes, a leaf 2 MiB. In every node a bit of `full` says that a
 * whole child is watched (once; more often is counted in `extra`), a bit of
 * `any` that something below is. So the cost of a question is bounded by the
 * height, whatever the length asked about and the number of watches: at most
 * two nodes a level, eight words each.
 *
 * filter_query runs in hooks, without a lock; all else under the subscriber's
 * lock. Invariant W1: from the end of filter_watch to the beginning of its
 * unwatch, some bit says that the page is watched. Which bit may change (a
 * watch of the whole child comes, the page's own goes), so a query that looks
 * at one bit before and at the other after could miss both. Hence `removing`:
 * odd while bits are being cleared. A query that found nothing, but saw it odd
 * or changed, says yes: a false alarm at worst, and nobody waits.
 * Bits are set from the leaf up. Nodes are never unmapped; a query that holds
 * one which was emptied and went elsewhere overlaps an unwatch.
 */
#ifndef LAPSE_FILTER_H
#define LAPSE_FILTER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILTER_WAYS_BITS 9
#define FILTER_WAYS (1u << FILTER_WAYS_BITS)
#define FILTER_WORDS (FILTER_WAYS / 64)
#define FILTER_ROOT_LEVEL 3 /* leaves are level 0 */

struct filter_leaf {
    _Atomic uint64_t full[FILTER_WORDS];
    uint32_t *extra; /* watches of a child beyond the first; NULL = none */
};

struct filter_node {
    struct filter_leaf leaf; /* must be first: same prefix on every level */
    _Atomic uint64_t any[FILTER_WORDS];
    _Atomic(struct filter_leaf *) child[FILTER_WAYS];
};

struct filter {
    struct filter_node *_Atomic root; /* NULL until the first watch */
    _Atomic uint64_t removing;
    /* Everything watched since the last clear lies in [low, high); high 0:
     * nothing. They only widen, and do so before bits are set. */
    _Atomic uintptr_t low, high;
};

/* May some page of [start, end) be watched? Page-aligned, below USER_END.
 * AS-safe; takes no lock. Exact, but for pages being changed meanwhile. */
bool filter_query(const struct filter *f, uintptr_t start, uintptr_t end);

/*
 * Is the page at `at` watched, and up to where (*until) does that go on at
 * least? As filter_query; while bits are removed it may say yes, of up to
 * FILTER_WAYS pages, wrongly.
 */
bool filter_span(const struct filter *f, uintptr_t at, uintptr_t *until);

/* How often it said so because bits were being removed all the time. */
extern _Atomic uint64_t filter_unsure __attribute__((visibility("hidden")));

/* Add one watch to each page. 0, -ENOMEM, -EOVERFLOW: nothing changed. */
int filter_watch(struct filter *f, uintptr_t start, uintptr_t end);

/* Take one from each page. 0, -ENOENT, -ENOMEM: no watch changed. */
int filter_unwatch(struct filter *f, uintptr_t start, uintptr_t end);

/* Forget everything. */
void filter_clear(struct filter *f);

#endif
