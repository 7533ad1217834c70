/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cache, and what its files share: get.c (lookup, put), make.c (a miss),
 * registrar.c (asking it), hear.c (hearing of releases, invalidating), gc.c
 * (what is to be deregistered), evict.c, tick.c (the thread), cache.c (the rest
 * of the API). index, lru, tally, pieces know nothing of these.
 *
 * One lock, held for no other code but lapse_poll(): no registrar, no malloc.
 * fork: a registration does not carry over, so in a child the cache is a
 * corpse. Everything but the hit looks at the process id before it touches the
 * lock (which another thread may have held); the hit looks at `quick`. Both
 * are zero there (`own`), also in a child that fork's handlers do not know of,
 * or that has the same process id in a namespace of its own.
 */
#ifndef LAPSE_RCACHE_CACHE_H
#define LAPSE_RCACHE_CACHE_H

#include <pthread.h>
#include <unistd.h>

#include "index.h"
#include "lapse.h"
#include "lru.h"
#include "region.h"
#include "tally.h"

#define NO_QUICK UINT64_MAX /* nobody's id */
#define CACHE_PAGE (1u << INDEX_PAGE)

struct lapse_rcache {
    /* Read by every hit; written at a miss at most. */
    lapse_handle handle;
    uintptr_t mine;   /* offset of a thread's entry for us (get.c) from its
                         thread pointer */
    char *regions;    /* index.base and .per_mark, on this line */
    size_t per_mark;
    unsigned marks;   /* shift: from a region's offset to its mark's */
    _Atomic uint32_t going; /* regions that are DEAD or GOING */
    struct tallies tallies;

    uint64_t id; /* never used again in this process */
    struct lapse_rcache_ops ops;
    struct lapse_rcache_limits limits;

    /* With the lock held: */
    pthread_mutex_t lock __attribute__((aligned(64)));
    struct lru lru;              /* all live ones */
    struct lapse_region *makers; /* all in MAKING */
    struct lapse_region *free;   /* after `freed` */
    uint32_t indices;            /* given out */
    uint64_t bytes;              /* of live ones */
    uint64_t misses, invalidated, evicted, merged, retried, failed;
    int over; /* what lapse_poll said when the subscription was over */

    /* Without: */
    struct region_stack freed; /* FREE */
    _Atomic uint64_t registered, deregistered, registered_bytes;
    _Atomic uint32_t leaving; /* of `going`, those that nobody holds */

    struct lapse_thread tick;
    pthread_t thread;
    bool has_thread;
    _Atomic uint32_t stop, wakes; /* wakes: futex of the thread */
    bool asleep; /* with the lock: the thread waits for a first region */

    /* A page that the kernel wipes in a forked child. */
    struct cache_own {
        _Atomic uint64_t quick; /* the id; NO_QUICK while records were taken
                                   and not acted on yet; always without
                                   membarrier */
        _Atomic bool draining; /* as for `quick`, for those that are not */
        pid_t pid;
    } own __attribute__((aligned(CACHE_PAGE)));

    struct index index __attribute__((aligned(CACHE_PAGE)));
};

/* Pushed by who invalidates under the lock, handed to gc_finish after it. */
struct dead_list {
    struct lapse_region *first;
};

static inline bool cache_is_ours(const struct lapse_rcache *c)
{
    return c->own.pid == getpid();
}

static inline void cache_lock(struct lapse_rcache *c)
{
    pthread_mutex_lock(&c->lock);
}

static inline void cache_unlock(struct lapse_rcache *c)
{
    pthread_mutex_unlock(&c->lock);
}

/* get.c */
uintptr_t mine_offset(uint64_t id);
index_taken lookup_taken;
void region_put(struct lapse_rcache *c, struct tally *t,
                struct lapse_region *r);

/* make.c: the miss; as lapse_rcache_get. */
int make_region(struct lookup *l, struct lapse_region **out);

/* registrar.c; without the lock. 0 or -errno. */
int registrar_ask(struct lapse_rcache *c, struct lapse_region *r);
void registrar_undo(struct lapse_rcache *c, struct lapse_region *r);
/* Would it be of use to deregister others? */
bool registrar_wants_room(int err);
/* Waits a little. False, at once: it did for 100 ms in all. Begins with 0. */
struct patience {
    uint64_t until;
    unsigned tries;
};
bool patience_left(struct patience *p);

/* hear.c; with the lock held. */
void hear_kill(struct lapse_rcache *c, struct lapse_region *r,
                struct dead_list *dead);
/* Kill the live ones that overlap, and mark those that are being made; returns
 * how many were live. */
unsigned hear_range(struct lapse_rcache *c, uintptr_t start, uintptr_t end,
                     struct dead_list *dead);
/* Hear of releases. 0; -ESTALE or such: there is no subscription any more,
 * and everything is dead. */
int hear_releases(struct lapse_rcache *c, struct dead_list *dead);

/* gc.c; without the lock. */
void gc_finish(struct lapse_rcache *c, struct dead_list *dead);
void gc_last_put(struct lapse_rcache *c, struct tally *t,
                 struct lapse_region *r);
/* With the lock. NULL: there are REGIONS_MAX. */
struct lapse_region *gc_new_region(struct lapse_rcache *c);

/* evict.c. Make room for one more of `len` bytes; with the lock. */
void evict_to_limits(struct lapse_rcache *c, size_t len, uint64_t one_more,
                     struct dead_list *dead);
/* Up to n regions; without the lock. Returns how many it found. */
unsigned evict_some(struct lapse_rcache *c, unsigned n);
/* All that overlap and are not in use; without the lock. */
void evict_overlapping(struct lapse_rcache *c, uintptr_t start, uintptr_t end);

/* tick.c */
int tick_start(struct lapse_rcache *c);
void tick_stop(struct lapse_rcache *c);
void tick_wake(struct lapse_rcache *c); /* a first region is there */

#endif
