/* SPDX-License-Identifier: BSD-3-Clause */
#include "pool.h"

struct record *pool_take(struct pool *p)
{
    /* acquire P1: pairs with P2; the record's next is then visible */
    uint64_t head = atomic_load_explicit(&p->head, memory_order_acquire);
    struct record *r;
    uint64_t rest;
    uint32_t index, high;

    do {
        index = (uint32_t)head;
        if (!index)
            return NULL;
        r = pool_at(p, index);
        /* relaxed: if another took r meanwhile this may be anything, and the
         * tag makes the exchange fail */
        rest = ((head >> 32) + 1) << 32 |
               atomic_load_explicit(&r->next, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&p->head, &head, rest,
                                                    memory_order_acquire,
                                                    memory_order_acquire));

    /* The stack is handed out lowest first and last in, first out: an index
     * is new only when all below it are in use. Relaxed: a statistic. */
    high = atomic_load_explicit(&p->high, memory_order_relaxed);
    while (high < index && !atomic_compare_exchange_weak_explicit(
                               &p->high, &high, index, memory_order_relaxed,
                               memory_order_relaxed))
        ;
    return r;
}

void pool_give(struct pool *p, struct record *r)
{
    uint64_t head = atomic_load_explicit(&p->head, memory_order_relaxed);
    uint64_t mine;

    do {
        atomic_store_explicit(&r->next, (uint32_t)head, memory_order_relaxed);
        mine = ((head >> 32) + 1) << 32 | pool_index(p, r);
        /* release P2: pairs with P1 */
    } while (!atomic_compare_exchange_weak_explicit(&p->head, &head, mine,
                                                    memory_order_release,
                                                    memory_order_relaxed));
}
