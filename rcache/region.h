/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A region, and the life of one:
 *
 *     FREE -> MAKING -> LIVE -> DEAD -> GOING -> FREE
 *
 * MAKING: its registrar runs; found by who misses on the same range. LIVE:
 * in the index. DEAD: out of it, users may be left. GOING: the one who took it
 * there (by compare-and-swap from DEAD) deregisters it. All other steps are
 * made with the cache's lock held, or by the only one who knows the region.
 *
 * Type-stable: the memory of a region is a region for as long as the cache is
 * there, and `index` never changes. So a lookup may look at a region that was
 * freed and used again; `state` carries a turn that tells it so.
 */
#ifndef LAPSE_RCACHE_REGION_H
#define LAPSE_RCACHE_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lapse_rcache.h"

#define REGIONS_MAX (1u << 20)

enum region_state {
    REGION_FREE = 0,
    REGION_MAKING,
    REGION_LIVE,
    REGION_DEAD,
    REGION_GOING
};
#define REGION_STATE 0xffull /* the rest of the word is the turn */
#define REGION_TURN 0x100ull

struct lapse_region {
    /* Read by lookups. Written in MAKING alone, so who saw one turn of
     * `state` before and after saw a whole set. */
    _Atomic uintptr_t start, end;
    _Atomic uint64_t state; /* its low half is the futex of those who wait
                               for MAKING to end */
    uint32_t index;         /* never changes */
    _Atomic uint32_t access;
    /* With the lock held, or by its only owner: */
    union {
        struct lapse_region *next; /* of one list: makers, dead, free */
        uint32_t place;            /* LIVE: in the lru */
    };
    union {
        uint64_t used; /* LIVE: the lru's key: not older than this */
        struct {
            int32_t maker; /* MAKING: the thread that runs its registrar */
            uint32_t awaits : 30; /* 1 + index of what that thread waits for */
            uint32_t lapsed : 1;  /* a release met the making of it */
            uint32_t waited : 1;  /* somebody sleeps on `state` */
        };
    };
    /* The registrar's memory; most fits into the rest of this line. */
    char memory[16] __attribute__((aligned(16)));
};
_Static_assert(sizeof(struct lapse_region) == 64 &&
                   offsetof(struct lapse_region, memory) == 48,
               "lapse_region_memory() knows this");

static inline uint64_t region_state(struct lapse_region *r)
{
    /* acquire S1: pairs with region_enter() */
    return atomic_load_explicit(&r->state, memory_order_acquire);
}

static inline enum region_state region_phase(uint64_t state)
{
    return (enum region_state)(state & REGION_STATE);
}

/* By the only one who may: see the top. */
static inline void region_enter(struct lapse_region *r, enum region_state to)
{
    uint64_t was = atomic_load_explicit(&r->state, memory_order_relaxed);

    if (to == REGION_MAKING)
        was += REGION_TURN;
    /* seq_cst S2: release of the fields to S1; DEAD before the look at the
     * counters, see tally.h */
    atomic_store_explicit(&r->state, (was & ~REGION_STATE) | to,
                          memory_order_seq_cst);
}

/* relaxed: with the lock held, or a region in use; it does not change */
static inline uintptr_t region_start(const struct lapse_region *r)
{
    return atomic_load_explicit(&r->start, memory_order_relaxed);
}

static inline uintptr_t region_end(const struct lapse_region *r)
{
    return atomic_load_explicit(&r->end, memory_order_relaxed);
}

/* acquire S3: before the second look at the state in a lookup */
static inline bool region_covers(const struct lapse_region *r,
                                 uintptr_t start, uintptr_t end,
                                 unsigned access)
{
    return atomic_load_explicit(&r->start, memory_order_acquire) <= start &&
           atomic_load_explicit(&r->end, memory_order_acquire) >= end &&
           !(access &
             ~atomic_load_explicit(&r->access, memory_order_acquire));
}

/* A lock-free LIFO: many push, whoever comes takes all; so there is no ABA. */
struct region_stack {
    _Atomic(struct lapse_region *) top;
};

static inline void region_push(struct region_stack *s, struct lapse_region *r)
{
    struct lapse_region *top =
        atomic_load_explicit(&s->top, memory_order_relaxed);

    /* release K1: pairs with the acquire in region_take_all */
    do
        r->next = top;
    while (!atomic_compare_exchange_weak_explicit(
        &s->top, &top, r, memory_order_release, memory_order_relaxed));
}

static inline struct lapse_region *region_take_all(struct region_stack *s)
{
    /* relaxed: empty now is empty; what is pushed meanwhile comes next time */
    if (!atomic_load_explicit(&s->top, memory_order_relaxed))
        return NULL;
    /* acquire K2: pairs with K1 */
    return atomic_exchange_explicit(&s->top, NULL, memory_order_acquire);
}

#endif
