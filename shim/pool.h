/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Records, preallocated: each subscriber has a pool of its own, so that one
 * that does not listen cannot starve another.
 *
 * A stack of indices with a tag against ABA. A record between take and push
 * belongs to the producer that took it; whoever stops there blocks nobody and
 * keeps one record. Memory of a pool is never unmapped (a producer may look at
 * it late) and serves the next subscriber in the same place.
 * Linearisation: the successful exchange on head (P1, P2).
 */
#ifndef LAPSE_POOL_H
#define LAPSE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct record {
    _Atomic uint32_t next; /* index + 1 of the next in pool or queue */
    uint32_t reason;
    uintptr_t start, end;
    uint64_t seq;
    uint64_t turn;  /* of the slot it was made in; see in_flight_open */
    uint32_t slot;
    uint32_t told;  /* consumer: round it was last told in, 0 = never */
    uint32_t taken; /* fork: reached by a queue or a backlog */
    uint32_t spare;
};

struct pool {
    struct record *record; /* array; NULL until first used */
    uint32_t size;
    _Atomic uint32_t high; /* most records in use at once */
    _Atomic uint64_t head; /* tag << 32 | index + 1 */
};

/* Make it ready: maps memory once. Returns 0 or -ENOMEM. */
int pool_open(struct pool *p, uint32_t size);

/* AS-safe, lock-free. NULL when empty. */
struct record *pool_take(struct pool *p);
void pool_give(struct pool *p, struct record *r);

/* After fork, alone: everything whose `taken` is not set is free again. */
void pool_rebuild(struct pool *p);

static inline uint32_t pool_index(const struct pool *p,
                                  const struct record *r)
{
    return (uint32_t)(r - p->record) + 1;
}

static inline struct record *pool_at(const struct pool *p, uint32_t index)
{
    return index ? &p->record[index - 1] : (struct record *)0;
}

#endif
