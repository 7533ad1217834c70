/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The trace of this process: its file, and writing records (trace_file.h).
 *
 * Who holds a slot of a release in flight (inflight.h) owns the ring of the
 * same number until it gives the slot back: that is all there is to tell
 * writers apart. A signal handler that interrupts one finds the slot taken and
 * gets another, and with it another ring. No lock, no allocation, no waiting
 * (G4); memory of a ring is got from the kernel, 64 KiB at a time, when it is
 * first written, so that a full disk is an error there and no SIGBUS here.
 *
 * In a child that was forked without fork()'s handlers nothing is written: the
 * file is its parent's.
 */
#ifndef LAPSE_TRACE_H
#define LAPSE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe.h"
#include "trace_file.h"

/* Where the file is mapped: constant after the constructor, fork included. */
struct trace_place {
    struct trace_header *header; /* NULL: there never was a trace */
    struct trace_head *heads;
    uint8_t *rings;
    uint64_t ring_bytes;
    uint32_t block_bytes;
    uint32_t stack_bytes;
};
extern struct trace_place lapse_trace __attribute__((visibility("hidden")));

/* Make the file, or say that it cannot be. From the constructor. */
void trace_start(void);
/* The process is at its end. */
void trace_stop(void);
/* The forked child, alone, before it is known as a forked one: a file of its
 * own, or none. The slots that this thread holds are in use. */
void trace_fork_child(void);

/* So many bytes of segments are copied, as they are now in the parent's file.
 * Returns how many were there when it was forked. NULL: nobody writes any. */
extern uint64_t (*trace_forked)(uint64_t copied)
    __attribute__((visibility("hidden")));

/* The thread is another one, after fork. */
void trace_forget_tid(void);

/* Have memory under that much of the fixed part of the file, as for rings.
 * False: there is none. Async-signal-safe. */
bool trace_fill(void *at, size_t bytes);

/* The time of records. */
uint64_t trace_ticks(void);

/*
 * Room for a record in the ring of a slot that the caller holds; NULL: there
 * is none, and it was counted as lost. Of the head, all but bytes, flags and
 * turn are set. Nobody sees it before trace_commit(), which the caller owes,
 * with `used` bytes at most as many as were asked for. False: this is a child
 * that was forked in between, and the record its parent's.
 */
struct trace_record *trace_reserve(unsigned slot, unsigned kind,
                                   uint32_t bytes);
bool trace_commit(unsigned slot, struct trace_record *r, uint32_t used);

/* One more record for which there was no ring. */
static inline void trace_lost(void)
{
    __atomic_fetch_add(&lapse_trace.header->lost, 1, __ATOMIC_RELAXED);
}

struct subscriber;
struct lapse_event;
/* Something that a subscriber is told or says. slot: one that the caller
 * holds, or TRACE_NO_SLOT. */
#define TRACE_NO_SLOT (~0u)
void trace_told(unsigned slot, unsigned kind, unsigned flags,
                const struct subscriber *s, const struct lapse_event *event);

static inline void trace_tell(unsigned slot, unsigned kind, unsigned flags,
                              const struct subscriber *s,
                              const struct lapse_event *event)
{
    if (__builtin_expect(observing(OBSERVE_TRACE), 0))
        trace_told(slot, kind, flags, s, event);
}

#endif
