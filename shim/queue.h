/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queue of a subscriber: many producers push, one consumer takes all.
 *
 * One word: generation << 32 | flags | index + 1 of the newest record.
 * The generation makes a push to a subscription that ended fail, and makes
 * the word of an idle queue known to its handle: that is lapse_pending().
 * Invariant Q1: a record reachable from the word belongs to the queue; taking
 *   it off (by exchange) hands all records over to who did it, consumer or
 *   collapsing producer.
 * Linearisation: push at Q2, take at Q3, collapse at Q3 with OVERFLOW set in
 *   the same step, so there is no moment in which a release is in neither.
 * A take-all has no ABA problem: a push only links to the index it saw, and
 * succeeds only if that is still the newest.
 */
#ifndef LAPSE_QUEUE_H
#define LAPSE_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool.h"

#define QUEUE_OVERFLOW ((uint64_t)1 << 31)
#define QUEUE_HELD ((uint64_t)1 << 30) /* the consumer keeps some back */
/* The backstop's reader is about to publish: releases that are over may not be
 * in the queue yet. Set before the kernel lets the releasing thread go. */
#define QUEUE_COMING ((uint64_t)1 << 29)
#define QUEUE_INDEX ((uint64_t)QUEUE_COMING - 1)

struct queue {
    _Atomic uint64_t word;
};

static inline uint64_t queue_idle(uint32_t generation)
{
    return (uint64_t)generation << 32;
}

/* False when that generation is over: the record is still the caller's. */
bool queue_push(struct queue *q, uint32_t generation, struct pool *p,
                struct record *r);

/* Take every record off, newest first, and set or clear flags in the same
 * step. Returns the word as it was. */
uint64_t queue_take(struct queue *q, uint64_t set, uint64_t clear);

/* Change flags only, of whatever generation there is. */
void queue_mark(struct queue *q, uint64_t set, uint64_t clear);

/* No record was left for a release: tell OVERFLOW instead, and give the pool
 * back what closed. */
void queue_collapse(struct queue *q, struct pool *p);

#endif
