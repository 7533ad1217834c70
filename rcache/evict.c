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
