/* SPDX-License-Identifier: BSD-3-Clause */
#include "queue.h"

#include "inflight.h"

bool queue_push(struct queue *q, uint32_t generation, struct pool *p,
                struct record *r)
{
    uint64_t word = atomic_load_explicit(&q->word, memory_order_relaxed);
    uint64_t mine = pool_index(p, r);

    do {
        if (word >> 32 != generation)
            return false;
        atomic_store_explicit(&r->next, (uint32_t)(word & QUEUE_INDEX),
                              memory_order_relaxed);
        /* seq_cst Q2: releases the record to Q3 and to lapse_pending(), and
         * comes before the look whether the consumer sleeps (W1, wake.c) */
    } while (!atomic_compare_exchange_weak_explicit(
        &q->word, &word, (word & ~QUEUE_INDEX) | mine, memory_order_seq_cst,
        memory_order_relaxed));
    return true;
}

uint64_t queue_take(struct queue *q, uint64_t set, uint64_t clear)
{
    uint64_t word = atomic_load_explicit(&q->word, memory_order_relaxed);

    /* acq_rel Q3: acquire pairs with Q2; release for flags set here */
    while (!atomic_compare_exchange_weak_explicit(
        &q->word, &word, (word & ~(QUEUE_INDEX | clear)) | set,
        memory_order_acq_rel, memory_order_relaxed))
        ;
    return word;
}

void queue_mark(struct queue *q, uint64_t set, uint64_t clear)
{
    uint64_t word = atomic_load_explicit(&q->word, memory_order_relaxed);

    /* seq_cst Q4: as Q2 */
    while (!atomic_compare_exchange_weak_explicit(
        &q->word, &word, (word & ~clear) | set, memory_order_seq_cst,
        memory_order_relaxed))
        ;
}

/*
 * Open records go back into the queue: they must be told again when they
 * close. There are at most as many as releases in flight. If the generation
 * changed meanwhile they are nobody's.
 */
void queue_collapse(struct queue *q, struct pool *p)
{
    uint64_t word = queue_take(q, QUEUE_OVERFLOW, 0);
    uint32_t index = (uint32_t)(word & QUEUE_INDEX);

    while (index) {
        struct record *r = pool_at(p, index);

        index = atomic_load_explicit(&r->next, memory_order_relaxed);
        if (!in_flight_open(r->slot, r->turn) ||
            !queue_push(q, (uint32_t)(word >> 32), p, r))
            pool_give(p, r);
    }
}
