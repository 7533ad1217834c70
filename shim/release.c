/* SPDX-License-Identifier: BSD-3-Clause */
#include "release.h"

#include "probes.h"
#include "subscriber.h"
#include "trace.h"
#include "wake.h"

_Atomic uint64_t lapse_live;
struct subscribers lapse_subscribers;

struct release_hull lapse_hull = {UINTPTR_MAX, 0};
struct release_free lapse_free;
bool lapse_free_seen;
const struct lapse_event lapse_overflow_event = {
    .len = SIZE_MAX,
    .reason = LAPSE_REASON_OVERFLOW,
    .flags = LAPSE_EVENT_OVERFLOW};

static void widen(struct release_hull *hull, uintptr_t start, uintptr_t end)
{
    uintptr_t low = atomic_load_explicit(&hull->low, memory_order_relaxed);
    uintptr_t high = atomic_load_explicit(&hull->high, memory_order_relaxed);

    /* seq_cst: part of F2 */
    while (start < low && !atomic_compare_exchange_weak_explicit(
                              &hull->low, &low, start, memory_order_seq_cst,
                              memory_order_relaxed))
        ;
    while (end > high && !atomic_compare_exchange_weak_explicit(
                             &hull->high, &high, end, memory_order_seq_cst,
                             memory_order_relaxed))
        ;
}

static void empty(struct release_hull *hull)
{
    atomic_store_explicit(&hull->low, UINTPTR_MAX, memory_order_seq_cst);
    atomic_store_explicit(&hull->high, 0, memory_order_seq_cst);
}

void release_start(void)
{
    empty(&lapse_free.hull);
}

void release_hull_widen(uintptr_t start, uintptr_t end)
{
    widen(&lapse_hull, start, end);
}

static void mark_near(uintptr_t start, uintptr_t end)
{
    uintptr_t first = start >> RELEASE_GRANULE_SHIFT;
    uintptr_t n = ((end - 1) >> RELEASE_GRANULE_SHIFT) - first + 1;

    if (n > RELEASE_GRANULES)
        n = RELEASE_GRANULES;
    for (uintptr_t i = 0; i < n; i++) {
        _Atomic uint8_t *mark =
            &lapse_free.near[(first + i) % RELEASE_GRANULES];

        /* relaxed: seen by who sees lapse_watch() return */
        if (!atomic_load_explicit(mark, memory_order_relaxed))
            atomic_store_explicit(mark, 1, memory_order_relaxed);
    }
}

void release_hull_reset(void)
{
    empty(&lapse_hull);
    if (atomic_load_explicit(&lapse_free.hull.high, memory_order_relaxed))
        for (size_t i = 0; i < RELEASE_GRANULES; i++)
            atomic_store_explicit(&lapse_free.near[i], 0,
                                  memory_order_relaxed);
    empty(&lapse_free.hull);
    if (lapse_free_seen && lapse_observing)
        release_free_widen(LAPSE_MASK(LAPSE_REASON_FREE), 0, USER_END);
}

void release_free_widen(uint32_t reasons, uintptr_t start, uintptr_t end)
{
    if (!(reasons & LAPSE_MASK(LAPSE_REASON_FREE)))
        return;
    mark_near(start, end);
    widen(&lapse_free.hull, start, end);
}

bool release_wanted_by(struct subscriber *s, uintptr_t start, uintptr_t end,
                       uint32_t reasons)
{
    return (atomic_load_explicit(&s->reasons, memory_order_relaxed) &
            reasons) &&
           (atomic_load_explicit(&s->all, memory_order_relaxed) ||
            filter_query(&s->filter, page_down(start), page_up(end)));
}

static bool wanted(uintptr_t start, uintptr_t end, uint32_t reasons)
{
    uint64_t live = atomic_load_explicit(&lapse_live, memory_order_seq_cst);

    for (; live; live &= live - 1)
        if (release_wanted_by(&lapse_subscribers.one[__builtin_ctzll(live)],
                              start, end, reasons))
            return true;
    return false;
}

bool release_wanted(uintptr_t start, uintptr_t end)
{
    return release_in_hull(start, end) && wanted(start, end, ~(uint32_t)0);
}

bool release_free_wanted(uintptr_t start, uintptr_t end)
{
    return wanted(start, end, LAPSE_MASK(LAPSE_REASON_FREE));
}

static void overflow_one(struct subscriber *s)
{
    /* An INLINE handler has no queue; it is called instead. */
    if (atomic_load_explicit(&s->delivery, memory_order_relaxed) ==
        LAPSE_INLINE)
        return;
    trace_tell(TRACE_NO_SLOT, TRACE_OVERFLOW, 0, s, &lapse_overflow_event);
    queue_collapse(&s->queue, &s->pool);
    probe_overflow(s->index);
    atomic_fetch_add_explicit(&lapse_subscribers.overflowed, 1,
                              memory_order_relaxed);
    wake_consumer(s);
}

void release_overflow(uint64_t subscribers)
{
    subscribers &= atomic_load_explicit(&lapse_live, memory_order_relaxed);
    for (; subscribers; subscribers &= subscribers - 1)
        overflow_one(
            &lapse_subscribers.one[__builtin_ctzll(subscribers)]);
}

/* A number per release, given when the first subscriber wants it. */
static uint64_t next_seq(uint64_t *seq)
{
    /* relaxed: an order for people; G1, G2 do not hang on it */
    if (!*seq)
        *seq = atomic_fetch_add_explicit(&lapse_subscribers.seq, 1,
                                         memory_order_relaxed) +
               1;
    return *seq;
}

/* Before the system call with OPEN, and once more after it without. */
static void call_inline(struct release *r, struct subscriber *s,
                        const struct lapse_event *event)
{
    uint64_t bit = (uint64_t)1 << (s - lapse_subscribers.one);
    lapse_callback callback;

    /* seq_cst N1: before the look at live; lapse_unsubscribe clears live (N2)
     * and then looks at `inlining`, so it waits for us or we see it gone */
    if (r->slot)
        atomic_fetch_or_explicit(&r->slot->inlining, bit,
                                 memory_order_seq_cst);
    callback = atomic_load_explicit(&s->callback, memory_order_acquire);
    if ((atomic_load_explicit(&lapse_live, memory_order_seq_cst) & bit) &&
        atomic_load_explicit(&s->delivery, memory_order_relaxed) ==
            LAPSE_INLINE &&
        callback) {
        probe_deliver(s->index, event->addr, event->len, event->reason,
                      event->seq, event->flags);
        trace_tell(TRACE_NO_SLOT, TRACE_DELIVER,
                   event->flags & LAPSE_EVENT_OPEN ? TRACE_EVENT_OPEN : 0, s,
                   event);
        callback(event, atomic_load_explicit(&s->arg, memory_order_relaxed));
        atomic_fetch_add_explicit(&lapse_subscribers.delivered, 1,
                                  memory_order_relaxed);
    }
    /* release N3: pairs with the acquire of who waits for it */
    if (r->slot)
        atomic_fetch_and_explicit(&r->slot->inlining, ~bit,
                                  memory_order_release);
}

/* What to say again at the end; a vector of ranges as one that holds all. */
static void tell_hull(struct in_flight *s, const struct lapse_event *event)
{
    uintptr_t end = event->addr + event->len;
    uintptr_t was =
        atomic_load_explicit(&s->told_end, memory_order_relaxed);

    /* relaxed: the holder alone reads and writes these */
    atomic_store_explicit(&s->seq, event->seq, memory_order_relaxed);
    if (!was || event->addr < atomic_load_explicit(&s->told_start,
                                                   memory_order_relaxed))
        atomic_store_explicit(&s->told_start, event->addr,
                              memory_order_relaxed);
    if (end > was)
        atomic_store_explicit(&s->told_end, end, memory_order_relaxed);
}

static void publish_inline(struct release *r, struct subscriber *s,
                           const struct lapse_event *event)
{
    call_inline(r, s, event);
    if (!r->slot)
        return; /* called again from release_end_marked, as OVERFLOW */
    tell_hull(r->slot, event);
    atomic_fetch_or_explicit(&r->slot->inline_due,
                             (uint64_t)1 << (s - lapse_subscribers.one),
                             memory_order_relaxed);
}

/* Not inlined: G4's stack. */
__attribute__((noinline))
static bool no_record(const struct subscriber *s, const struct record *what)
{
    uint64_t bit = (uint64_t)1 << (s - lapse_subscribers.one);

    /* seq_cst B1: before OVERFLOW */
    atomic_fetch_or_explicit(&lapse_in_flight.slot[what->slot].blind, bit,
                             memory_order_seq_cst);
    release_overflow(bit);
    return false;
}

bool release_record(struct subscriber *s, const struct record *what)
{
    uint32_t generation = subscriber_generation(s);
    struct record *rec = pool_take(&s->pool);

    if (!rec)
        return no_record(s, what);
    rec->start = what->start;
    rec->end = what->end;
    rec->reason = what->reason;
    rec->seq = what->seq;
    rec->slot = what->slot;
    rec->turn = what->turn;
    rec->told = 0;
    if (!queue_push(&s->queue, generation, &s->pool, rec)) {
        pool_give(&s->pool, rec); /* unsubscribed meanwhile */
        return false;
    }
    probe_publish(s->index, what->start, what->end - what->start,
                  what->reason, what->seq);
    wake_consumer(s);
    return true;
}

static void trace_publish(const struct release *r, const struct subscriber *s,
                          uintptr_t start, uintptr_t end, unsigned reason,
                          uint64_t seq)
{
    struct lapse_event event = {
        .addr = start, .len = end - start, .reason = reason, .seq = seq};
    bool is_inline = atomic_load_explicit(&s->delivery,
                                          memory_order_relaxed) ==
                     LAPSE_INLINE;

    trace_tell(r->slot ? (unsigned)(r->slot - lapse_in_flight.slot)
                       : TRACE_NO_SLOT,
               TRACE_PUBLISH, is_inline ? TRACE_INLINE : 0, s, &event);
}

static void publish_one(struct release *r, struct subscriber *s,
                        uintptr_t start, uintptr_t end, unsigned reason,
                        uint64_t seq)
{
    struct record what = {.start = start, .end = end, .reason = reason,
                          .seq = seq};

    if (!r->slot) /* release_unslotted has said OVERFLOW */
        return;
    what.slot = (uint32_t)(r->slot - lapse_in_flight.slot);
    what.turn = atomic_load_explicit(&r->slot->turn, memory_order_relaxed);
    if (release_record(s, &what))
        tally_add(&release_tally(r)->published, 1);
}

/*
 * The record is in the queue before the kernel acts (G1): whoever gets the
 * address next comes after it.
 */
void release_publish(struct release *r, uintptr_t start, uintptr_t end,
                     unsigned reason)
{
    uint64_t live = atomic_load_explicit(&lapse_live, memory_order_seq_cst);
    uintptr_t first = page_down(start), last = page_up(end);
    uint64_t seq = 0;

    for (; live; live &= live - 1) {
        struct subscriber *s = &lapse_subscribers.one[__builtin_ctzll(live)];

        if (!(atomic_load_explicit(&s->reasons, memory_order_relaxed) >>
                  reason &
              1))
            continue;
        if (!atomic_load_explicit(&s->all, memory_order_relaxed) &&
            !filter_query(&s->filter, first, last)) {
            if (r->slot)
                tally_add(&release_tally(r)->filtered, 1);
            continue;
        }
        next_seq(&seq);
        trace_publish(r, s, start, end, reason, seq);
        if (atomic_load_explicit(&s->delivery, memory_order_relaxed) ==
            LAPSE_INLINE) {
            struct lapse_event event = {.addr = start,
                                        .len = end - start,
                                        .seq = seq,
                                        .reason = reason,
                                        .flags = LAPSE_EVENT_OPEN};

            publish_inline(r, s, &event);
        } else {
            publish_one(r, s, start, end, reason, seq);
        }
    }
}

/* INLINE handlers that were called before are called after, too: a
 * registration made in between lapsed as well. */
static void end_inline(struct release *r, uint64_t due)
{
    struct in_flight *s = r->slot;
    uint64_t range = atomic_load_explicit(&s->range, memory_order_relaxed);
    uint64_t seq =
        atomic_exchange_explicit(&s->seq, 0, memory_order_relaxed);
    uintptr_t start =
        atomic_exchange_explicit(&s->told_start, 0, memory_order_relaxed);
    uintptr_t end =
        atomic_exchange_explicit(&s->told_end, 0, memory_order_relaxed);
    struct lapse_event event = {
        .reason = atomic_load_explicit(&s->reason, memory_order_relaxed)};

    if (!due || (!end && range == RANGE_NOTHING))
        return; /* a watch marked the holder before us, a moment late */
    if (!end) { /* a watch met us: nothing was told yet */
        start = range_start(range);
        end = range_end(range);
    }
    event.addr = start;
    event.len = end - start;
    event.seq = next_seq(&seq);
    for (; due; due &= due - 1)
        call_inline(r, &lapse_subscribers.one[__builtin_ctzll(due)], &event);
}

void release_void(struct release *r)
{
    struct in_flight *s = r->slot;

    if (!s)
        return; /* OVERFLOW was said */
    /* relaxed: read by who saw T1 of this turn, which is yet to come */
    atomic_store_explicit(
        &s->voided, atomic_load_explicit(&s->turn, memory_order_relaxed),
        memory_order_relaxed);
    atomic_store_explicit(&s->inline_due, 0, memory_order_relaxed);
    atomic_store_explicit(&s->seq, 0, memory_order_relaxed);
    atomic_store_explicit(&s->told_start, 0, memory_order_relaxed);
    atomic_store_explicit(&s->told_end, 0, memory_order_relaxed);
}

static void inline_overflow(struct release *r)
{
    uint64_t live = atomic_load_explicit(&lapse_live, memory_order_seq_cst);

    for (; live; live &= live - 1) {
        struct subscriber *s = &lapse_subscribers.one[__builtin_ctzll(live)];

        if (atomic_load_explicit(&s->delivery, memory_order_relaxed) ==
            LAPSE_INLINE)
            call_inline(r, s, &lapse_overflow_event);
    }
}

/* All 1024 slots are taken: queues get OVERFLOW now and at the end; INLINE
 * handlers are called with the range now, with OVERFLOW at the end. */
void release_unslotted(void)
{
    /* seq_cst B1: before OVERFLOW is set; see in_flight_blind */
    atomic_fetch_add_explicit(&lapse_in_flight.unslotted, 1,
                              memory_order_seq_cst);
    release_overflow(~(uint64_t)0);
}

void release_end_marked(struct release *r)
{
    struct in_flight *s = r->slot;

    if (!s) {
        release_overflow(~(uint64_t)0);
        inline_overflow(r);
        /* seq_cst B1: after OVERFLOW was set again */
        atomic_fetch_sub_explicit(&lapse_in_flight.unslotted, 1,
                                  memory_order_seq_cst);
        release_leave(r);
        return;
    }
    end_inline(r, atomic_exchange_explicit(&s->inline_due, 0,
                                           memory_order_acquire));
    /* OVERFLOW again, then the mark goes: B1 */
    release_overflow(atomic_load_explicit(&s->blind, memory_order_seq_cst));
    atomic_store_explicit(&s->blind, 0, memory_order_seq_cst);
    in_flight_release(s);
    release_leave(r);
}

#ifdef LAPSE_TEST_HOOKS
uint64_t release_test_ns[2];

void release_test_delay(int after)
{
    struct timespec_ { long s, ns; } t0, t;

    if (!release_test_ns[after] ||
        !atomic_load_explicit(&lapse_live, memory_order_relaxed))
        return;
    sys(SYS_clock_gettime, 1, &t0);
    do
        sys(SYS_clock_gettime, 1, &t);
    while ((uint64_t)((t.s - t0.s) * 1000000000 + t.ns - t0.ns) <
           release_test_ns[after]);
}
#endif
