/* SPDX-License-Identifier: BSD-3-Clause */
#include "trace_release.h"

size_t (*lapse_snapshot)(struct trace_stack *to, size_t max);

static uint32_t put_stack(struct trace_release *t, uint32_t room)
{
    size_t used = lapse_snapshot((struct trace_stack *)(t + 1), room);

    t->head.flags = used ? TRACE_HAS_STACK : TRACE_STACK_LOST;
    return (uint32_t)used;
}

void trace_release(const struct release *r, uintptr_t start, uintptr_t end,
                   unsigned path, enum inside inside, uintptr_t pc)
{
    unsigned slot = (unsigned)(r->slot - lapse_in_flight.slot);
    uint32_t room = lapse_snapshot
                        ? (uint32_t)sizeof(struct trace_stack) +
                              lapse_trace.stack_bytes
                        : 0;
    struct trace_release *t;
    uint32_t used;

    if (!r->slot) {
        trace_lost();
        return;
    }
    t = (struct trace_release *)trace_reserve(slot, TRACE_RELEASE,
                                              sizeof(*t) + room);
    if (!t)
        return;
    t->head.turn = (uint32_t)atomic_load_explicit(&r->slot->turn,
                                                  memory_order_relaxed);
    t->start = start;
    t->end = end;
    t->pc = pc;
    t->path = (uint8_t)path;
    t->reason = (uint8_t)atomic_load_explicit(&r->slot->reason,
                                              memory_order_relaxed);
    t->inside = (uint8_t)inside;
    used = room ? put_stack(t, room) : 0;
    if (trace_commit(slot, &t->head, (uint32_t)sizeof(*t) + used) && room &&
        !used)
        __atomic_fetch_add(&lapse_trace.header->stackless, 1,
                           __ATOMIC_RELAXED);
}
