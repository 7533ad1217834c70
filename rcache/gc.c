/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who deregisters, and when: with no lock held, as soon as a region is DEAD
 * and held by nobody. That is right after it was invalidated, or at its last
 * put, and by the one who won it, before he returns: nobody waits for another
 * one's registrar, and no list of them is shared. What is free again goes onto
 * a lock-free LIFO.
 */
#include "cache.h"

/* One winner. relaxed on failure: somebody else does it. */
static bool win(struct lapse_rcache *c, struct lapse_region *r)
{
    uint64_t state = region_state(r);

    if (region_phase(state) != REGION_DEAD ||
        tally_sum(&c->tallies, r->index))
        return false;
    /* acquire: after all that its users did; they counted down before */
    return atomic_compare_exchange_strong_explicit(
        &r->state, &state, (state & ~REGION_STATE) | REGION_GOING,
        memory_order_acq_rel, memory_order_relaxed);
}

static void deregister(struct lapse_rcache *c, struct lapse_region *r)
{
    uintptr_t start = region_start(r), end = region_end(r);

    registrar_undo(c, r);
    if (!(c->limits.flags & LAPSE_RCACHE_BLIND))
        lapse_unwatch(c->handle, (void *)start, end - start);
    atomic_fetch_sub_explicit(&c->going, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&c->leaving, 1, memory_order_relaxed);
    region_enter(r, REGION_FREE);
    region_push(&c->freed, r);
}

void gc_finish(struct lapse_rcache *c, struct dead_list *dead)
{
    struct lapse_region *r = dead->first, *won = NULL, *next;

    if (r)
        tally_barrier(&c->tallies); /* T3, once for all of them */
    for (; r; r = next) {
        next = r->next;
        rcache_test_pause();
        tally_unhold(&c->tallies, r->index); /* its last put may win now */
        if (win(c, r)) {
            r->next = won;
            won = r;
        } else {
            atomic_fetch_sub_explicit(&c->leaving, 1, memory_order_relaxed);
        }
    }
    dead->first = NULL;
    for (; won; won = next) {
        next = won->next;
        deregister(c, won);
    }
}

void gc_last_put(struct lapse_rcache *c, struct tally *t,
                 struct lapse_region *r)
{
    if (!cache_is_ours(c))
        return;
    tally_fence(t, r->index); /* T4 */
    if (!win(c, r))
        return;
    atomic_fetch_add_explicit(&c->leaving, 1, memory_order_relaxed);
    deregister(c, r);
}

struct lapse_region *gc_new_region(struct lapse_rcache *c)
{
    struct lapse_region *r;

    if (!c->free)
        c->free = region_take_all(&c->freed);
    r = c->free;
    if (r) {
        c->free = r->next;
    } else if (c->indices < REGIONS_MAX) {
        r = index_region(&c->index, (uint64_t)c->indices << WORD_INDEX);
        r->index = c->indices++;
        if (c->indices == TALLIES_MANY)
            tallies_many(&c->tallies);
    }
    return r;
}
