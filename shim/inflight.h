/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Releases in flight: a table of what is being released right now.
 *
 * A hook claims a slot, before it looks at any filter, by one compare-and-swap
 * that also announces the range; it gives the slot back after the system call.
 * From the table it follows whether a record is open (its slot still has the
 * turn the record was made in), so closing is one store, whoever was told.
 *
 * Invariant I1: while the system call of a release runs, a slot of the table
 *   announces a range that contains it (or `unslotted` is not zero).
 * Invariant I2 (nothing falls between watch and release): a hook claims (C1),
 *   then reads the filter (F1); lapse_watch writes the filter (F2), then reads
 *   the table (C2). All four are seq_cst, so of F1 and C2 at least one sees
 *   what the other side wrote: either the hook publishes, or the watch sees
 *   the release in flight and makes a record for it itself, before it
 *   returns, hence before the pinning.
 *   A look at the filter after the call, which one could do instead, would
 *   tell of it too late: after the kernel has released, and before the hook
 *   looks again, another thread can get the address and hit the registration.
 * Linearisation: a release begins at C1 and ends at the store T1 to `turn`.
 */
#ifndef LAPSE_INFLIGHT_H
#define LAPSE_INFLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "range.h"

#define IN_FLIGHT_SLOTS 1024

struct in_flight {
    /* Announced range: first page << 29 | pages (saturated); 0 = free. */
    _Atomic uint64_t range;
    /* Odd while in use, even between; written by the holder only. */
    _Atomic uint64_t turn;
    /* Thread pointer of the holder, for fork; 0 just before and after. */
    _Atomic uintptr_t owner;
    /* Subscribers that got no record for this release: they are told
     * OVERFLOW as long as it is in flight, and once more at its end. */
    _Atomic uint64_t blind;
    /* Subscribers whose INLINE handler is to be called again at the end. */
    _Atomic uint64_t inline_due;
    /* Subscribers whose INLINE handler may be running in this slot. */
    _Atomic uint64_t inlining;
    /* For inline_due; written by the holder. */
    _Atomic uint64_t seq;
    /* What INLINE handlers were told, exactly; 0, 0: nothing yet. */
    _Atomic uintptr_t told_start, told_end;
    /* Of free: the block it is about, else 0; for the holder alone. */
    _Atomic uintptr_t block;
    /* The last turn that released nothing after all: see release_void. */
    _Atomic uint64_t voided;
    _Atomic uint32_t reason;
} __attribute__((aligned(64)));

struct in_flight_table {
    struct in_flight slot[IN_FLIGHT_SLOTS];
    _Atomic uint32_t last;      /* highest slot ever used */
    _Atomic uint32_t unslotted; /* releases in flight that found no slot */
};
extern struct in_flight_table lapse_in_flight
    __attribute__((visibility("hidden")));

/* 4 bytes of initial-exec TLS: where to look for a slot first, and how many
 * hooks this thread is inside of (release.h keeps it). Only hints for speed
 * and for fork. */
struct in_flight_hint {
    uint16_t slot;
    uint16_t depth;
};
extern __thread struct in_flight_hint lapse_hint
    __attribute__((tls_model("initial-exec")));

/* How many slots there are to scan. seq_cst: part of C2 (I2). */
static inline uint32_t in_flight_high(void)
{
    return atomic_load_explicit(&lapse_in_flight.last, memory_order_seq_cst) +
           1;
}

#define RANGE_PAGES_BITS 29
#define RANGE_PAGES_MAX (((uint64_t)1 << RANGE_PAGES_BITS) - 1)
/* A call that releases nothing: no page at all, so it overlaps no watch. */
#define RANGE_NOTHING ((uint64_t)1 << RANGE_PAGES_BITS)

static inline uint64_t range_pack(uintptr_t start, uintptr_t end)
{
    uint64_t pages = (end - start) >> PAGE_SHIFT;

    if (pages > RANGE_PAGES_MAX)
        pages = RANGE_PAGES_MAX;
    return (uint64_t)(start >> PAGE_SHIFT) << RANGE_PAGES_BITS | pages;
}

static inline uintptr_t range_start(uint64_t range)
{
    return (uintptr_t)(range >> RANGE_PAGES_BITS) << PAGE_SHIFT;
}

static inline uintptr_t range_end(uint64_t range)
{
    uint64_t pages = range & RANGE_PAGES_MAX;

    return pages == RANGE_PAGES_MAX
               ? USER_END
               : range_start(range) + ((uintptr_t)pages << PAGE_SHIFT);
}

/* Claim a slot other than the hinted one; NULL when all are taken. */
struct in_flight *in_flight_search(uint64_t range);

/* hint: lapse_hint.slot */
static inline struct in_flight *in_flight_claim(uint64_t range, unsigned hint)
{
    struct in_flight *s = &lapse_in_flight.slot[hint];
    uint64_t none = 0;

    /* seq_cst C1 (see I2). The hint never names a slot above `last`. */
    if (!atomic_compare_exchange_strong_explicit(&s->range, &none, range,
                                                 memory_order_seq_cst,
                                                 memory_order_relaxed))
        s = in_flight_search(range);
    if (!s)
        return NULL;
    /* relaxed: only this thread writes while it holds the slot; readers of
     * turn accept the value before (see in_flight_open) */
    atomic_store_explicit(&s->owner, (uintptr_t)__builtin_thread_pointer(),
                          memory_order_relaxed);
    atomic_store_explicit(
        &s->turn, atomic_load_explicit(&s->turn, memory_order_relaxed) + 1,
        memory_order_relaxed);
    return s;
}

static inline void in_flight_release(struct in_flight *s)
{
    atomic_store_explicit(&s->owner, 0, memory_order_relaxed);
    /* release T1: pairs with T2; who sees it closed sees the call done */
    atomic_store_explicit(
        &s->turn, atomic_load_explicit(&s->turn, memory_order_relaxed) + 1,
        memory_order_release);
    /* release C3: pairs with C1 of the next holder (tallies, turn) */
    atomic_store_explicit(&s->range, 0, memory_order_release);
}

/*
 * Is the release of this slot and (odd) turn in flight? May say yes for a
 * while when it is over, never no when it is not: a watch that met the slot
 * between claim and turn guessed the turn to come, and a wrong guess ends
 * when the slot is next given back.
 */
static inline bool in_flight_open(unsigned slot, uint64_t turn)
{
    struct in_flight *s = &lapse_in_flight.slot[slot];
    /* acquire T2: pairs with T1 */
    uint64_t now = atomic_load_explicit(&s->turn, memory_order_acquire);

    if (now == turn)
        return true;
    return now == turn - 1 &&
           atomic_load_explicit(&s->range, memory_order_acquire) != 0;
}

/*
 * Of a turn that is not open any more: did it release nothing after all? A
 * later one of this slot may have been voided since; then the answer is no,
 * and somebody is told a false alarm.
 */
static inline bool in_flight_void(unsigned slot, uint64_t turn)
{
    /* relaxed: stored before T1, which T2 of in_flight_open() has seen */
    return atomic_load_explicit(&lapse_in_flight.slot[slot].voided,
                                memory_order_relaxed) == turn;
}

/* Is any release in flight for which this subscriber got no record? */
bool in_flight_blind(unsigned subscriber);

/* The forked child, alone: end what other threads had in flight. */
void in_flight_fork_child(void);

#endif
