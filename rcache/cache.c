/* SPDX-License-Identifier: BSD-3-Clause */
/* Making, emptying, asking and destroying a cache. */
#include "cache.h"

#include <errno.h>

#define REGION_BYTES_MOST 4096
#define ROUNDS_MOST 64

static _Atomic uint64_t last_id;

static bool ops_valid(const struct lapse_rcache_ops *ops)
{
    return ops && ops->size >= sizeof(*ops) && ops->register_region &&
           ops->deregister_region && ops->region_bytes <= REGION_BYTES_MOST;
}

static bool limits_take(struct lapse_rcache_limits *l,
                        const struct lapse_rcache_limits *given)
{
    *l = (struct lapse_rcache_limits){.size = sizeof(*l)};
    if (given && given->size < sizeof(*given))
        return false;
    if (given)
        *l = *given;
    if ((l->align & (l->align - 1)) || (l->flags & ~LAPSE_RCACHE_BLIND))
        return false;
    if (!l->max_regions || l->max_regions > REGIONS_MAX)
        l->max_regions = REGIONS_MAX;
    if (l->align < (size_t)1 << INDEX_PAGE)
        l->align = (size_t)1 << INDEX_PAGE;
    if (!l->idle_ms)
        l->idle_ms = LAPSE_RCACHE_IDLE_MS;
    return true;
}

static void give_back(struct lapse_rcache *c)
{
    lru_free(&c->lru);
    tallies_free(&c->tallies);
    index_free(&c->index);
    pieces_unmap(c, sizeof(*c));
}

static int set_up(struct lapse_rcache *c)
{
    struct lapse_subscription how = {.size = sizeof(how),
                                     .delivery = LAPSE_POLL};
    int err = index_init(&c->index, c->ops.region_bytes);

    if (!err)
        err = tallies_init(&c->tallies);
    c->own.quick = c->tallies.locked ? NO_QUICK : c->id;
    c->regions = c->index.base;
    c->per_mark = c->index.per_mark;
    c->marks = c->index.shift - INDEX_MARK;
    if (!err)
        err = lru_init(&c->lru);
    if (!err)
        err = lapse_subscribe(&how, &c->handle);
    if (err)
        return err;
    err = tick_start(c);
    if (err)
        lapse_unsubscribe(c->handle);
    return err;
}

int lapse_rcache_create(const struct lapse_rcache_ops *ops,
                        const struct lapse_rcache_limits *limits,
                        lapse_rcache **out)
{
    struct lapse_rcache_limits given;
    struct lapse_rcache *c;
    int err;

    if (!out || !ops_valid(ops) || !limits_take(&given, limits))
        return -EINVAL;
    c = pieces_map(sizeof(*c));
    if (!c)
        return -ENOMEM;
    pieces_wipe_on_fork(&c->own, CACHE_PAGE);
    c->ops = *ops;
    c->limits = given;
    c->own.pid = getpid();
    /* relaxed: only has to be another one each time */
    c->id = 1 + atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed);
    c->mine = mine_offset(c->id);
    pthread_mutex_init(&c->lock, NULL);
    err = set_up(c);
    if (err)
        give_back(c);
    else
        *out = c;
    return err;
}

int lapse_rcache_invalidate(lapse_rcache *c, const void *addr, size_t len)
{
    uintptr_t start = (uintptr_t)addr, end = start + len;
    struct dead_list dead = {NULL};
    unsigned n;

    if (!cache_is_ours(c))
        return -ESTALE;
    if (!len || end < start)
        return -EINVAL;
    cache_lock(c);
    n = hear_range(c, start, end, &dead);
    c->invalidated += n;
    cache_unlock(c);
    gc_finish(c, &dead);
    return (int)n;
}

int lapse_rcache_flush(lapse_rcache *c)
{
    return lapse_rcache_invalidate(c, NULL, SIZE_MAX);
}

int lapse_rcache_progress(lapse_rcache *c)
{
    struct dead_list dead = {NULL};
    int err;

    if (!cache_is_ours(c))
        return -ESTALE;
    cache_lock(c);
    err = hear_releases(c, &dead);
    evict_to_limits(c, 0, 0, &dead);
    tallies_sync(&c->tallies, tallies_now(&c->tallies));
    cache_unlock(c);
    gc_finish(c, &dead);
    return err;
}

int lapse_rcache_stats(lapse_rcache *c, struct lapse_rcache_stats *out)
{
    if (!out || out->size < sizeof(*out))
        return -EINVAL;
    if (!cache_is_ours(c))
        return -ESTALE;
    cache_lock(c);
    *out = (struct lapse_rcache_stats){
        .size = sizeof(*out),
        .regions = c->lru.n,
        .bytes = c->bytes,
        .lapsed = c->going,
        .hits = tally_hits(&c->tallies),
        .misses = c->misses,
        .registered = c->registered,
        .deregistered = c->deregistered,
        .registered_bytes = c->registered_bytes,
        .invalidated = c->invalidated,
        .evicted = c->evicted,
        .merged = c->merged,
        .retried = c->retried,
        .failed = c->failed,
        .threads = c->tallies.threads,
        .memory = ((uint64_t)c->indices << c->index.shift) +
                  c->index.nodes.bytes +
                  c->index.leaves.bytes + c->index.links.bytes,
    };
    cache_unlock(c);
    return 0;
}

/* deregister_region may get others: until none is left. False: some are in
 * use, or it gets one each time. No other thread uses the cache. */
static bool emptied(struct lapse_rcache *c)
{
    unsigned rounds = 0;

    do
        lapse_rcache_flush(c);
    while (c->lru.n && ++rounds < ROUNDS_MOST);
    /* relaxed: no other thread is there */
    return !c->lru.n &&
           !atomic_load_explicit(&c->going, memory_order_relaxed);
}

int lapse_rcache_destroy(lapse_rcache *c)
{
    if (cache_is_ours(c)) {
        if (c->has_thread && pthread_equal(c->thread, pthread_self()))
            return -EDEADLK;
        tick_stop(c);
        if (!emptied(c)) {
            tick_start(c);
            return -EBUSY;
        }
        lapse_unsubscribe(c->handle);
        pthread_mutex_destroy(&c->lock);
    }
    give_back(c);
    return 0;
}
