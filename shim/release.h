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
    uint16_t outside;       /* the depth of this thread before */
};

enum inside { INSIDE_NOTHING, INSIDE_ALLOCATOR, INSIDE_LOADER, INSIDE_LIBC };

/* Tell every subscriber that wants this reason and watches some of it. */
void release_publish(struct release *r, uintptr_t start, uintptr_t end,
                     unsigned reason);
/* The rare part of the end: something in the slot asks for it. */
void release_end_marked(struct release *r);

/*
 * It released nothing after all, as seen when it is done: a realloc that
 * stayed in place. Who polls from now on is not told; who was told while it
 * was open heard a false alarm. Before release_end().
 */
void release_void(struct release *r);

struct subscriber;
/* Does he want to be told of some of this, for one of these reasons? */
bool release_wanted_by(struct subscriber *s, uintptr_t start, uintptr_t end,
                       uint32_t reasons);
/* Does anybody, for whatever reason? */
bool release_wanted(uintptr_t start, uintptr_t end);

struct record;
/*
 * Queue a record of a release in that slot and turn for a subscriber; its
 * `next` and `told` do not matter. With no record left the slot is marked, and
 * OVERFLOW told. False: so it was, or the generation is over.
 */
bool release_record(struct subscriber *s, const struct record *what);

/* What OVERFLOW is told as. */
extern const struct lapse_event lapse_overflow_event
    __attribute__((visibility("hidden")));

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

/*
 * Outside of [low, high) nobody is to be told of anything. Widened before a
 * filter's bits are set, or a LAPSE_ALL subscriber goes live, so reading it is
 * F1 and widening F2 of invariant I2 (inflight.h). Empty again, with low above
 * high, only while nobody subscribes.
 */
struct release_hull {
    _Atomic uintptr_t low, high;
};
extern struct release_hull lapse_hull __attribute__((visibility("hidden")));
static inline bool release_in_hull(uintptr_t start, uintptr_t end)
{
    /* seq_cst: part of F1 */
    return end > atomic_load_explicit(&lapse_hull.low,
                                      memory_order_seq_cst) &&
           start < atomic_load_explicit(&lapse_hull.high,
                                        memory_order_seq_cst);
}
/* From the constructor. */
void release_start(void);
/* Under the registry's lock, or a subscriber's. */
void release_hull_widen(uintptr_t start, uintptr_t end);
/* Under the registry's lock, nobody being subscribed. */
void release_hull_reset(void);

/*
 * The same for who wants FREE, and which granules of memory are near anything
 * that was watched since nobody subscribed last; by its number, in a table
 * that knows 2^16 apart. Read at the entry of a patched free(), by assembly,
 * in this order. Everything is near when frees are counted. Its first bytes
 * are written at the start: so it is no 64 KiB of the file.
 */
#define RELEASE_GRANULE_SHIFT 16
#define RELEASE_GRANULES (1u << 16)
struct release_free {
    struct release_hull hull;
    _Atomic uint8_t near[RELEASE_GRANULES];
};
extern struct release_free lapse_free __attribute__((visibility("hidden")));

static inline bool release_free_near(uintptr_t start, uintptr_t end)
{
    uintptr_t first = start >> RELEASE_GRANULE_SHIFT;
    uintptr_t last = (end - 1) >> RELEASE_GRANULE_SHIFT;

    /* acquire, as all loads of the assembly: with what lapse_watch wrote
     * before it returned; the filter has the last word */
    return end > atomic_load_explicit(&lapse_free.hull.low,
                                      memory_order_acquire) &&
           (last - first > 1 ||
            atomic_load_explicit(&lapse_free.near[first % RELEASE_GRANULES],
                                 memory_order_acquire) ||
            atomic_load_explicit(&lapse_free.near[last % RELEASE_GRANULES],
                                 memory_order_acquire));
}

/* FREE is seen in this process. Set by the constructor, before the first
 * subscription; never cleared. */
extern bool lapse_free_seen __attribute__((visibility("hidden")));
/* A subscriber of these reasons watches this; under its lock. */
void release_free_widen(uint32_t reasons, uintptr_t start, uintptr_t end);
/* Does anybody want to be told that this block is freed? */
bool release_free_wanted(uintptr_t start, uintptr_t end);

/* Bit i: subscriber i is to be told by hooks. */
extern _Atomic uint64_t lapse_live __attribute__((visibility("hidden")));

void release_unslotted(void);

static inline void release_leave(struct release *r)
{
    atomic_signal_fence(memory_order_seq_cst);
    lapse_hint.depth = r->outside;
}

static inline void release_claim(struct release *r, uint64_t range)
{
    /* Stored, not incremented: 7 ns cheaper here. Hooks nest, and a signal
     * handler that interrupts this puts back what it found. */
    struct in_flight_hint hint = lapse_hint;

    r->outside = hint.depth;
    lapse_hint.depth = hint.depth + 1;
    atomic_signal_fence(memory_order_seq_cst); /* a handler may fork */
    r->slot = in_flight_claim(range, hint.slot);
    if (__builtin_expect(!r->slot, 0))
        release_unslotted();
}

/* As above, and says why, for a watch that meets it. */
static inline void release_announce(struct release *r, uint64_t range,
                                    unsigned reason)
{
    release_claim(r, range);
    if (__builtin_expect(r->slot != NULL, 1))
        atomic_store_explicit(&r->slot->reason, reason, memory_order_relaxed);
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
    struct report_path *p;

    if (__builtin_expect(!r->slot, 0))
        return;
    p = &release_tally(r)->path[path];
    if (!releases) {
        tally_add(&p->passes, 1);
        return;
    }
    tally_add(&p->releases, 1);
    tally_add(&p->bytes, bytes);
    if (inside)
        tally_add(&p->inside[inside - 1], 1);
}

/* Claims, then looks whether anybody watches (I2), and if so publishes. False:
 * there was nobody to tell. */
static inline bool release_begin(struct release *r, uintptr_t start,
                                 uintptr_t end, unsigned reason)
{
    bool near;

    release_announce(r, range_pack(start, end), reason);
    near = __builtin_expect(release_in_hull(start, end), 0);
    if (near)
        release_publish(r, start, end, reason);
    release_test_delay(0);
    return near;
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
    release_leave(r);
}

#endif
