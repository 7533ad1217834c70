/* SPDX-License-Identifier: BSD-3-Clause */
#include "inflight.h"

#include "release.h"
#include "report.h"

struct in_flight_table lapse_in_flight;
__thread struct in_flight_hint lapse_hint
    __attribute__((tls_model("initial-exec")));

static void raise_last(uint32_t i)
{
    uint32_t last =
        atomic_load_explicit(&lapse_in_flight.last, memory_order_relaxed);

    if (last >= i)
        return;
    /* seq_cst: before C1 of the slot, so that C2 scans far enough */
    while (last < i && !atomic_compare_exchange_weak_explicit(
                           &lapse_in_flight.last, &last, i,
                           memory_order_seq_cst, memory_order_relaxed))
        ;
    /* for who reads the report of a process that was killed */
    __atomic_store_n(&lapse_report->in_flight_high, i + 1, __ATOMIC_RELAXED);
}

/* From the lowest on, so that the table stays as short as the most releases
 * that were ever in flight at once. */
struct in_flight *in_flight_search(uint64_t range)
{
    for (unsigned i = 0; i < IN_FLIGHT_SLOTS; i++) {
        struct in_flight *s = &lapse_in_flight.slot[i];
        uint64_t none = 0;

        /* relaxed: a quick look, the exchange decides */
        if (atomic_load_explicit(&s->range, memory_order_relaxed))
            continue;
        raise_last(i);
        if (atomic_compare_exchange_strong_explicit(&s->range, &none, range,
                                                    memory_order_seq_cst,
                                                    memory_order_relaxed)) {
            lapse_hint.slot = (uint16_t)i;
            return s;
        }
    }
    return NULL;
}

bool in_flight_blind(unsigned subscriber)
{
    uint32_t high = in_flight_high();

    /* seq_cst B2: pairs with B1 in release.c: the mark is set before OVERFLOW
     * and taken away after OVERFLOW was set again */
    if (atomic_load_explicit(&lapse_in_flight.unslotted,
                             memory_order_seq_cst))
        return true;
    for (unsigned i = 0; i < high; i++)
        /* A free slot may have a stray bit: a watch came a moment late. */
        if ((atomic_load_explicit(&lapse_in_flight.slot[i].blind,
                                  memory_order_seq_cst) >>
                 subscriber &
             1) &&
            atomic_load_explicit(&lapse_in_flight.slot[i].range,
                                 memory_order_seq_cst))
            return true;
    return false;
}

/*
 * Runs in the child with all locks of ours held; there is no other thread, so
 * relaxed is enough throughout. Slots of this thread stay: it forked from a
 * signal handler inside a hook, and will come back to give them back. If it is
 * inside one, a slot without owner may be its own and stays too: told again
 * and again, never forgotten.
 */
void in_flight_fork_child(void)
{
    uintptr_t self = (uintptr_t)__builtin_thread_pointer();
    uint32_t high = in_flight_high();

    for (unsigned i = 0; i < high; i++) {
        struct in_flight *s = &lapse_in_flight.slot[i];
        uintptr_t owner =
            atomic_load_explicit(&s->owner, memory_order_relaxed);
        uint64_t turn = atomic_load_explicit(&s->turn, memory_order_relaxed);

        if (!atomic_load_explicit(&s->range, memory_order_relaxed))
            continue;
        if (owner == self || (!owner && lapse_hint.depth))
            continue;
        release_overflow(
            atomic_load_explicit(&s->blind, memory_order_relaxed));
        atomic_store_explicit(&s->blind, 0, memory_order_relaxed);
        atomic_store_explicit(&s->inlining, 0, memory_order_relaxed);
        atomic_store_explicit(&s->inline_due, 0, memory_order_relaxed);
        atomic_store_explicit(&s->block, 0, memory_order_relaxed);
        atomic_store_explicit(&s->owner, 0, memory_order_relaxed);
        /* even again, and past every turn that a record was made in: one that
         * met the slot before its turn was stamped guessed turn + 1 */
        atomic_store_explicit(&s->turn, turn + ((turn & 1) ? 1 : 2),
                              memory_order_relaxed);
        atomic_store_explicit(&s->range, 0, memory_order_relaxed);
    }
    if (!lapse_hint.depth && atomic_load_explicit(&lapse_in_flight.unslotted,
                                                  memory_order_relaxed)) {
        release_overflow(~(uint64_t)0);
        atomic_store_explicit(&lapse_in_flight.unslotted, 0,
                              memory_order_relaxed);
    }
}
