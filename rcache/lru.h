/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Live regions by how long ago they were used, without hits writing anything
 * that others read: a heap by a key that is at most the time of last use. Its
 * least one is looked up in the counters of all threads (tally.h); used since,
 * it gets its true key and sinks, else it is the least recently used one. With
 * the cache's lock held.
 */
#ifndef LAPSE_RCACHE_LRU_H
#define LAPSE_RCACHE_LRU_H

#include "region.h"
#include "tally.h"

struct lru {
    struct lapse_region **heap; /* room for REGIONS_MAX */
    uint32_t n;
};

int lru_init(struct lru *l);
void lru_free(struct lru *l);
void lru_add(struct lru *l, struct lapse_region *r, uint64_t now);
void lru_remove(struct lru *l, struct lapse_region *r);

/* The least recently used one that nobody holds, or NULL. At most `looks`
 * that somebody holds are passed by; those count as used now. */
struct lapse_region *lru_oldest(struct lru *l, const struct tallies *all,
                                uint64_t now, uint32_t looks);

#endif
