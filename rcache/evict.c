/* SPDX-License-Identifier: BSD-3-Clause */
/* Live regions that nobody holds make room, least recently used first. */
#include "cache.h"
#include "probes.h"

/* Of regions in use, to be passed by for the sake of a limit. */
#define LOOKS 64

static bool over_limits(const struct lapse_rcache *c, size_t len,
                        uint64_t one_more)
{
    const struct lapse_rcache_limits *l = &c->limits;

    return c->lru.n + one_more > l->max_regions ||
           (l->max_bytes && c->bytes + len > l->max_bytes);
}

static bool evict_one(struct lapse_rcache *c, uint32_t looks,
                      struct dead_list *dead)
{
    struct lapse_region *r = lru_oldest(&c->lru, &c->tallies,
                                        tallies_now(&c->tallies), looks);

    if (!r)
        return false;
    probe_evict(c, r);
    hear_kill(c, r, dead);
    c->evicted++;
    return true;
}

void evict_to_limits(struct lapse_rcache *c, size_t len, uint64_t one_more,
                     struct dead_list *dead)
{
    while (over_limits(c, len, one_more) && evict_one(c, LOOKS, dead))
        ;
}

unsigned evict_some(struct lapse_rcache *c, unsigned n)
{
    struct dead_list dead = {NULL};
    unsigned found = 0;

    cache_lock(c);
    while (found < n && evict_one(c, c->lru.n, &dead))
        found++;
    cache_unlock(c);
    gc_finish(c, &dead);
    return found;
}

static struct lapse_region *unused_in(struct lapse_rcache *c, index_list *list)
{
    for (uint64_t w = index_word(list); w; w = index_rest(w)) {
        struct lapse_region *r = index_at(&c->index, w);

        if (!tally_sum(&c->tallies, r->index))
            return r;
    }
    return NULL;
}

void evict_overlapping(struct lapse_rcache *c, uintptr_t start, uintptr_t end)
{
    struct index_cursor cursor = {.page = start >> INDEX_PAGE};
    struct dead_list dead = {NULL};
    struct lapse_region *r;

    cache_lock(c);
    for (index_list *list;
         (list = index_next(&c->index, &cursor, (end - 1) >> INDEX_PAGE));)
        while ((r = unused_in(c, list))) {
            probe_evict(c, r);
            hear_kill(c, r, &dead);
            c->evicted++;
        }
    cache_unlock(c);
    gc_finish(c, &dead);
}
