/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A release, from the hook's side: begin, the system call, end.
 * Nothing here takes a lock, allocates or waits (G4).
 */
#ifndef LAPSE_RELEASE_H
#define LAPSE_RELEASE_H

#include <stddef.h>
#include <stdint.h>

#include "inflight.h"
#include "lapse.h"
#include "report.h"

struct release {
    struct in_flight *slot; /* NULL: the table was full */
};

enum inside { INSIDE_NOTHING, INSIDE_ALLOCATOR, INSIDE_LOADER, INSIDE_LIBC };

/* Tell every subscriber that wants this reason and watches some of it. */
void release_publish(struct release *r, uintptr_t start, uintptr_t end,
                     unsigned reason);
/* The rare part of the end: something in the slot asks for it. */
void release_end_marked(struct release *r);

/* Tell these subscribers (a bit each) that everything may have lapsed. */
void release_overflow(uint64_t subscribers);

#ifdef LAPSE_TEST_HOOKS
/* Test builds only: widen the windows before and after the system call. */
void release_test_delay(int after);
#else
static inline void release_test_delay(int after)
{
    (void)after;
}
#endif

/* Bit i: subscriber i is to be told. */
extern _Atomic uint64_t lapse_live __attribute__((visibility("hidden")));

void release_unslotted(void);

static inline void release_claim(struct release *r, uint64_t range)
{
    r->slot = in_flight_claim(range);
    if (__builtin_expect(!r->slot, 0))
        release_unslotted();
}

/* The holder of a slot owns its tally: plain additions. */
static inline struct report_tally *release_tally(struct release *r)
{
    return &lapse_report->tallies[r->slot - lapse_in_flight.slot];
}

static inline void tally_add(uint64_t *counter, uint64_t n)
{
    /* relaxed: one writer at a time; readers want a recent value */
    __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static inline void release_count(struct release *r, unsigned path,
                                 uint64_t bytes, int releases,
                                 enum inside inside)
{
    struct lapse_path_stats *s;

    if (__builtin_expect(!r->slot, 0))
        return;
    s = &release_tally(r)->path[path];
    tally_add(&s->calls, 1);
    if (!releases)
        return;
    tally_add(&s->releases, 1);
    tally_add(&s->bytes, bytes);
    if (inside)
        tally_add(&s->inside_allocator + (inside - 1), 1);
}

/* Claims, then looks whether anybody watches (I2), and if so publishes. */
static inline void release_begin(struct release *r, uintptr_t start,
                                 uintptr_t end, unsigned reason)
{
    release_claim(r, range_pack(start, end));
    if (__builtin_expect(r->slot != NULL, 1))
        atomic_store_explicit(&r->slot->reason, reason, memory_order_relaxed);
    /* seq_cst: part of F1 */
    if (atomic_load_explicit(&lapse_live, memory_order_seq_cst))
        release_publish(r, start, end, reason);
    release_test_delay(0);
}

static inline void release_end(struct release *r)
{
    struct in_flight *s = r->slot;

    release_test_delay(1);
    /* relaxed: a mark by this thread; one by a watch that we miss was made
     * after the system call, and that watch looks again (watch.c) */
    if (__builtin_expect(
            !s || (atomic_load_explicit(&s->blind, memory_order_relaxed) |
                   atomic_load_explicit(&s->inline_due,
                                        memory_order_relaxed)),
            0)) {
        release_end_marked(r);
        return;
    }
    in_flight_release(s);
}

#endif
