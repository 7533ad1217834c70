/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A ring for a moment, for who is in no hook: a slot of the table of releases
 * in flight that announces nothing. That there is none is no overflow of
 * anybody's, other than for a release; it is counted as a record lost.
 */
#ifndef LAPSE_TRACE_SLOT_H
#define LAPSE_TRACE_SLOT_H

#include <stdbool.h>

#include "inflight.h"
#include "trace.h"

struct trace_slot {
    struct in_flight *slot;
    uint16_t outside; /* the depth of this thread before */
};

static inline void trace_slot_give(struct trace_slot *t)
{
    if (t->slot)
        in_flight_release(t->slot);
    atomic_signal_fence(memory_order_seq_cst);
    lapse_hint.depth = t->outside;
}

static inline bool trace_slot_take(struct trace_slot *t)
{
    struct in_flight_hint hint = lapse_hint;

    t->outside = hint.depth;
    lapse_hint.depth = hint.depth + 1; /* as release_claim() */
    atomic_signal_fence(memory_order_seq_cst);
    t->slot = in_flight_claim(RANGE_NOTHING, hint.slot);
    if (t->slot)
        return true;
    trace_slot_give(t);
    trace_lost();
    return false;
}

static inline unsigned trace_slot_number(const struct trace_slot *t)
{
    return (unsigned)(t->slot - lapse_in_flight.slot);
}

#endif
