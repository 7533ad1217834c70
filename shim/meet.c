/* SPDX-License-Identifier: BSD-3-Clause */
#include "meet.h"

#include "inflight.h"
#include "release.h"
#include "trace.h"
#include "wake.h"

/*
 * A release in flight that may have looked at the filter before we changed it:
 * put a record of it into the queue on its behalf, open for as long as its
 * slot is. It says the part that is watched.
 */
static void tell_in_flight(struct subscriber *s, unsigned slot,
                           uintptr_t start, uintptr_t end)
{
    struct in_flight *f = &lapse_in_flight.slot[slot];
    uint64_t turn = atomic_load_explicit(&f->turn, memory_order_acquire);
    uint64_t bit = (uint64_t)1 << (s - lapse_subscribers.one);
    struct record what = {.start = start, .end = end, .slot = slot};

    turn |= 1; /* even: its holder is about to stamp it, or gives it back */
    if (atomic_load_explicit(&s->delivery, memory_order_relaxed) ==
        LAPSE_INLINE) {
        atomic_fetch_or_explicit(&f->inline_due, bit, memory_order_seq_cst);
        return;
    }
    /* relaxed: may be the last holder's; only for people, so it cannot be
     * held against the mask of reasons */
    what.reason = atomic_load_explicit(&f->reason, memory_order_relaxed);
    what.seq = atomic_fetch_add_explicit(&lapse_subscribers.seq, 1,
                                         memory_order_relaxed) +
               1;
    what.turn = turn;
    trace_tell(TRACE_NO_SLOT, TRACE_PUBLISH, 0, s,
               &(struct lapse_event){.addr = start,
                                     .len = end - start,
                                     .reason = what.reason,
                                     .seq = what.seq});
    release_record(s, &what);
}

/* C2 of invariant I2 (inflight.h): after the filter was changed. */
void meet_in_flight(struct subscriber *s, uintptr_t start, uintptr_t end)
{
    uint32_t high = in_flight_high();

    for (unsigned i = 0; i < high; i++) {
        uint64_t range = atomic_load_explicit(&lapse_in_flight.slot[i].range,
                                              memory_order_seq_cst);
        uintptr_t a = range_start(range), b = range_end(range);

        if (!range || range == RANGE_NOTHING || a >= end || b <= start)
            continue;
        tell_in_flight(s, i, a > start ? a : start, b < end ? b : end);
    }
    if (atomic_load_explicit(&lapse_in_flight.unslotted,
                             memory_order_seq_cst))
        release_overflow((uint64_t)1 << (s - lapse_subscribers.one));
}

void meet_files(uintptr_t start, uintptr_t end)
{
    uint64_t live = atomic_load_explicit(&lapse_live, memory_order_seq_cst);
    uint32_t high = in_flight_high();

    for (unsigned i = 0; i < high; i++) {
        /* seq_cst M2; see meet.h */
        if (atomic_load_explicit(&lapse_in_flight.slot[i].range,
                                 memory_order_seq_cst) !=
            range_pack(0, USER_END))
            continue;
        for (uint64_t rest = live; rest; rest &= rest - 1) {
            struct subscriber *s =
                &lapse_subscribers.one[__builtin_ctzll(rest)];

            if (release_wanted_by(s, start, end,
                                  LAPSE_MASK(LAPSE_REASON_FILE)))
                tell_in_flight(s, i, start, end);
        }
    }
}
