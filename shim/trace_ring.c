/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writing records: the part of trace.h that runs in hooks.
 *
 * Linearisation: a record is there from the store to `end` (P3) on, and is
 * gone from the store to `begin` (P1) that covers its place on. A writer that
 * is stopped or killed in between leaves `end` where it was: what it was
 * writing is not there, what it was writing over is gone.
 */
#include "trace.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "fork.h"
#include "inflight.h"
#include "lapse.h"
#include "range.h"
#include "subscriber.h"
#include "sys.h"
#include "trace_slot.h"

#define FILL_BYTES (64u << 10) /* got from the kernel at a time */
#define GRAIN 32u              /* no record is shorter, or no multiple */

struct trace_place lapse_trace;
uint32_t lapse_observing;

/* This thread's number, asked once; another one after fork. */
static __thread uint32_t own_tid __attribute__((tls_model("initial-exec")));

/* A child made by vfork() has the memory of the thread that waits for it, and
 * is another process: its number is not to be kept there. */
static __attribute__((noinline)) uint32_t ask_tid(void)
{
    uint32_t n = (uint32_t)sys(SYS_gettid);

    if ((uint32_t)sys(SYS_getpid) == lapse_trace.header->pid)
        own_tid = n;
    return n;
}

static uint32_t tid(void)
{
    return __builtin_expect(own_tid != 0, 1) ? own_tid : ask_tid();
}

void trace_forget_tid(void)
{
    own_tid = 0;
}

uint64_t trace_ticks(void)
{
    return __builtin_ia32_rdtsc();
}

static struct trace_record *lost(void)
{
    trace_lost();
    return NULL;
}

/* An old kernel (before 5.14) cannot say, and gives memory when it is written
 * to, or a SIGBUS. */
bool trace_fill(void *at, size_t bytes)
{
    uintptr_t start = page_down((uintptr_t)at);
    long err = sys(SYS_madvise, start, page_up((uintptr_t)at + bytes) - start,
                   MADV_POPULATE_WRITE);

    return !err || err == -EINVAL;
}

/* Have memory under all up to this position. */
static bool fill(struct trace_head *head, uint8_t *ring, uint64_t upto)
{
    uint64_t ready = head->ready;

    while (ready < upto && ready < lapse_trace.ring_bytes) {
        if (!trace_fill(ring + ready, FILL_BYTES)) {
            head->off = TRACE_FULL;
            return false;
        }
        ready += FILL_BYTES;
    }
    head->ready = ready;
    return true;
}

static void set_head(struct trace_record *r, unsigned kind, uint32_t bytes,
                     uint64_t number)
{
    r->bytes = bytes;
    r->kind = (uint16_t)kind;
    r->flags = 0;
    r->tid = tid();
    r->turn = 0;
    r->number = number;
    r->ticks = trace_ticks();
}

static void put_clock(uint8_t *at, uint64_t number)
{
    struct trace_clock_record *c = (struct trace_clock_record *)at;
    struct timespec now = {0};

    set_head(&c->head, TRACE_CLOCK, sizeof(*c), number);
    sys(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    c->monotonic = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct trace_record *reserve(struct trace_head *head, unsigned slot,
                                    unsigned kind, uint32_t bytes)
{
    uint8_t *ring = lapse_trace.rings + slot * lapse_trace.ring_bytes;
    uint64_t mask = lapse_trace.ring_bytes - 1, at = head->end, upto;
    uint32_t block = lapse_trace.block_bytes;
    uint32_t left = block - (uint32_t)(at & (block - 1)), pad = 0, clock = 0;
    struct trace_record *r;

    bytes = (bytes + GRAIN - 1) & ~(GRAIN - 1);
    if (bytes > left)
        pad = left;
    if (pad || left == block)
        clock = sizeof(struct trace_clock_record);
    upto = at + pad + clock + bytes;
    if (upto > head->ready && head->ready < lapse_trace.ring_bytes &&
        !fill(head, ring, upto))
        return lost();
    /* P1, and a fence so that nothing of what follows is seen before it:
     * whoever sees some of it sees `begin` afterwards (P2 in the reader) */
    if (upto > head->begin)
        __atomic_store_n(&head->begin, upto, __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_release);
    if (pad)
        set_head((struct trace_record *)(ring + (at & mask)), TRACE_PAD, pad,
                 head->next);
    at += pad;
    if (clock)
        put_clock(ring + (at & mask), head->next);
    r = (struct trace_record *)(ring + ((at + clock) & mask));
    set_head(r, kind, bytes, head->next);
    return r;
}

/* The record that a fork cut in two is over, and what its writer still had in
 * its registers was the parent's place: the ring is a new one. */
static void begin_again(struct trace_head *head)
{
    head->begin = head->end = head->next = 0;
    /* release: who reads a ring that is on reads these */
    __atomic_store_n(&head->off, TRACE_ON, __ATOMIC_RELEASE);
}

struct trace_record *trace_reserve(unsigned slot, unsigned kind,
                                   uint32_t bytes)
{
    struct trace_head *head = &lapse_trace.heads[slot];

    if (fork_was_raw())
        return NULL; /* the file, its count of losses too, is the parent's */
    if (head->off == TRACE_FORKED && head->ready)
        begin_again(head);
    if (head->off)
        return lost();
    /* a handler that forks from here on makes trace_commit() fail */
    atomic_signal_fence(memory_order_seq_cst);
    return reserve(head, slot, kind, bytes);
}

/* A child that was forked since trace_reserve(): what it ends here is its
 * parent's, in a ring that is the parent's too, or new. */
static bool forked_since(const struct trace_head *head)
{
    return fork_was_raw() || !observing(OBSERVE_TRACE) ||
           head->off == TRACE_FORKED;
}

bool trace_commit(unsigned slot, struct trace_record *r, uint32_t used)
{
    struct trace_head *head = &lapse_trace.heads[slot];
    uint8_t *ring = lapse_trace.rings + slot * lapse_trace.ring_bytes;
    uint64_t mask = lapse_trace.ring_bytes - 1, end = head->end;
    uint64_t at = (uint64_t)((uint8_t *)r - ring);

    if (forked_since(head))
        return false;
    r->bytes = (used + GRAIN - 1) & ~(GRAIN - 1);
    head->next++;
    end += ((at - end) & mask) + r->bytes;
    /* release P3: pairs with the reader's acquire of `end` */
    __atomic_store_n(&head->end, end, __ATOMIC_RELEASE);
    return true;
}

static void put_told(unsigned slot, unsigned kind, unsigned flags,
                     const struct subscriber *s,
                     const struct lapse_event *event)
{
    struct trace_told *t =
        (struct trace_told *)trace_reserve(slot, kind, sizeof(*t));

    if (!t)
        return;
    t->head.flags = (uint16_t)flags;
    t->head.turn = (uint32_t)atomic_load_explicit(
        &lapse_in_flight.slot[slot].turn, memory_order_relaxed);
    t->start = event->addr;
    t->end = event->addr + event->len;
    t->seq = event->seq;
    t->subscriber = (uint32_t)(s - lapse_subscribers.one);
    t->reason = event->reason;
    trace_commit(slot, &t->head, sizeof(*t));
}

/* Neither is inlined into the other: G4's stack. */
__attribute__((noinline))
static void put_told_in_own(unsigned kind, unsigned flags,
                            const struct subscriber *s,
                            const struct lapse_event *event)
{
    struct trace_slot own;

    if (!trace_slot_take(&own))
        return;
    put_told(trace_slot_number(&own), kind, flags, s, event);
    trace_slot_give(&own);
}

void trace_told(unsigned slot, unsigned kind, unsigned flags,
                const struct subscriber *s, const struct lapse_event *event)
{
    if (slot == TRACE_NO_SLOT)
        put_told_in_own(kind, flags, s, event);
    else
        put_told(slot, kind, flags, s, event);
}
