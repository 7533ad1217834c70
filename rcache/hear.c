/* SPDX-License-Identifier: BSD-3-Clause */
/* What lapsed: from what lapse_poll() tells to regions that nobody finds. */
#include "cache.h"

#define EVENTS 64

void hear_kill(struct lapse_rcache *c, struct lapse_region *r,
                struct dead_list *dead)
{
    /* seq_cst: before the barrier (T3), as DEAD; a put looks at it first */
    atomic_fetch_add_explicit(&c->going, 1, memory_order_seq_cst);
    /* relaxed, here and below: who sees it late asks the registrar once less
     * than he might */
    atomic_fetch_add_explicit(&c->leaving, 1, memory_order_relaxed);
    index_remove(&c->index, r);
    lru_remove(&c->lru, r);
    c->bytes -= region_end(r) - region_start(r);
    tally_hold(&c->tallies, r->index);
    region_enter(r, REGION_DEAD);
    r->next = dead->first;
    dead->first = r;
}

/* Kill the live ones that overlap; returns how many. */
static unsigned hear_overlapping(struct lapse_rcache *c, uintptr_t start,
                                 uintptr_t end, struct dead_list *dead)
{
    struct index_cursor cursor = {.page = start >> INDEX_PAGE};
    index_list *list;
    unsigned n = 0;

    if (start >= end)
        return 0;
    while ((list = index_next(&c->index, &cursor, (end - 1) >> INDEX_PAGE)))
        for (struct lapse_region *r; (r = index_first(&c->index, list)); n++)
            hear_kill(c, r, dead);
    return n;
}

unsigned hear_range(struct lapse_rcache *c, uintptr_t start, uintptr_t end,
                     struct dead_list *dead)
{
    unsigned n = hear_overlapping(c, start, end, dead);

    for (struct lapse_region *r = c->makers; r; r = r->next)
        if (region_start(r) < end && region_end(r) > start)
            r->lapsed = true;
    return n;
}

/*
 * `draining` is set before records are taken, and cleared when what they say
 * was done. A lookup that finds nothing pending looks at it next (D2), so it
 * does not slip through between the two: it reads the word that our taking
 * left, and with it (acquire in lapse_pending) that we were draining.
 */
int hear_releases(struct lapse_rcache *c, struct dead_list *dead)
{
    struct lapse_event event[EVENTS];
    int n = c->over;

    if (!n && !lapse_pending(c->handle))
        return 0;
    /* seq_cst D1: before the records are taken */
    atomic_store_explicit(&c->own.draining, true, memory_order_seq_cst);
    atomic_store_explicit(&c->own.quick, NO_QUICK, memory_order_seq_cst);
    do {
        if (!c->over)
            n = lapse_poll(c->handle, event, EVENTS);
        rcache_test_pause();
        if (n < 0) {
            c->over = n;
            c->invalidated += hear_range(c, 0, UINTPTR_MAX, dead);
        }
        for (int i = 0; i < n; i++)
            c->invalidated += hear_range(c, event[i].addr,
                                          event[i].addr + event[i].len, dead);
    } while (n == EVENTS);
    /* release D1: what was done, for who sees it cleared */
    atomic_store_explicit(&c->own.draining, false, memory_order_release);
    if (!c->tallies.locked)
        atomic_store_explicit(&c->own.quick, c->id, memory_order_release);
    return n < 0 ? n : 0;
}
