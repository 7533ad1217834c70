/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lapse_poll, lapse_fd, and how records become events.
 *
 * What producers pushed is taken over to the backlog, oldest first; a record
 * leaves the backlog when it was told after its release closed. Until then it
 * is told in every round: a registration made between two tellings lapses too
 * (G2). Invariant B1: QUEUE_HELD is set in the queue's word whenever the lock
 * is free and the backlog is not empty or OVERFLOW is to be told, so that
 * lapse_pending() is true.
 */
#include "poll.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>

#include "backstop.h"
#include "inflight.h"
#include "probes.h"
#include "release.h"
#include "trace.h"
#include "wake.h"
#include "watchdog.h"

#ifdef LAPSE_TEST_HOOKS
int poll_test_no_redelivery;
#else
#define poll_test_no_redelivery 0
#endif

static uint32_t next_of(const struct record *r)
{
    /* relaxed: records of the backlog are ours alone */
    return atomic_load_explicit(&r->next, memory_order_relaxed);
}

static void set_next(struct record *r, uint32_t next)
{
    atomic_store_explicit(&r->next, next, memory_order_relaxed);
}

void poll_take(struct subscriber *s)
{
    uint64_t word = atomic_load_explicit(&s->queue.word, memory_order_relaxed);
    uint32_t index, oldest = 0, newest;

    if (!(word & (QUEUE_INDEX | QUEUE_OVERFLOW)))
        return;
    word = queue_take(&s->queue, QUEUE_HELD, QUEUE_OVERFLOW);
    if (word & QUEUE_OVERFLOW) {
        s->overflow = true;
        s->overflow_told = 0;
    }
    newest = index = (uint32_t)(word & QUEUE_INDEX);
    while (index) { /* newest first: turn round */
        struct record *r = pool_at(&s->pool, index);
        uint32_t older = next_of(r);

        set_next(r, oldest);
        oldest = index;
        index = older;
    }
    if (!newest)
        return;
    if (s->last)
        set_next(pool_at(&s->pool, s->last), oldest);
    else
        s->first = oldest;
    s->last = newest;
}

/* Drop the record behind `before` (0 = the first). */
static void unlink_after(struct subscriber *s, uint32_t before)
{
    uint32_t index =
        before ? next_of(pool_at(&s->pool, before)) : s->first;
    struct record *r = pool_at(&s->pool, index);

    if (before)
        set_next(pool_at(&s->pool, before), next_of(r));
    else
        s->first = next_of(r);
    if (s->last == index)
        s->last = before;
    pool_give(&s->pool, r);
}

static inline __attribute__((always_inline)) void
note_delivery(const struct subscriber *s, const struct lapse_event *event)
{
    trace_tell(TRACE_NO_SLOT, TRACE_DELIVER,
               event->flags & LAPSE_EVENT_OPEN ? TRACE_EVENT_OPEN : 0, s,
               event);
    probe_deliver(s->index, event->addr, event->len, event->reason,
                  event->seq, event->flags);
}

static void to_event(const struct subscriber *s, const struct record *r,
                     bool open, struct lapse_event *event)
{
    *event = (struct lapse_event){.addr = r->start,
                                  .len = r->end - r->start,
                                  .seq = r->seq,
                                  .reason = r->reason,
                                  .flags = open ? LAPSE_EVENT_OPEN : 0};
    note_delivery(s, event);
}

static bool overflow_due(struct subscriber *s, enum collect mode,
                         struct lapse_event *event)
{
    if (!s->overflow || s->overflow_told == s->round)
        return false;
    if (mode == COLLECT_DRAIN && s->overflow_told)
        return false;
    *event = lapse_overflow_event;
    s->overflow_told = s->round;
    note_delivery(s, event);
    return true;
}

static void end_round(struct subscriber *s)
{
    s->cursor = 0;
    if (++s->round == 0)
        s->round = 1;
    /* It was told, and stays as long as a release that it stands for runs. */
    if (s->overflow && s->overflow_told &&
        !in_flight_blind((unsigned)(s - lapse_subscribers.one)))
        s->overflow = false;
    if (!s->first && !s->overflow)
        queue_mark(&s->queue, 0, QUEUE_HELD);
}

void poll_rewind(struct subscriber *s)
{
    s->cursor = 0;
    if (++s->round == 0)
        s->round = 1;
}

size_t poll_collect(struct subscriber *s, struct lapse_event *events,
                    size_t n, enum collect mode)
{
    size_t count = 0;

    if (mode == COLLECT_POLL)
        backstop_settle(s);
    if (mode != COLLECT_SYNC)
        poll_take(s);
    if (count < n && overflow_due(s, mode, &events[count]))
        count++;
    while (count < n) {
        uint32_t index =
            s->cursor ? next_of(pool_at(&s->pool, s->cursor)) : s->first;
        struct record *r = pool_at(&s->pool, index);
        bool open;

        if (!r)
            break;
        /* Before it is told: closed now means told after it closed. */
        open = in_flight_open(r->slot, r->turn) && !poll_test_no_redelivery;
        if (!open && in_flight_void(r->slot, r->turn)) {
            unlink_after(s, s->cursor);
            continue;
        }
        if (!(open && mode == COLLECT_DRAIN && r->told))
            to_event(s, r, open, &events[count++]);
        r->told = s->round;
        if (open)
            s->cursor = index;
        else
            unlink_after(s, s->cursor);
    }
    if (count < n)
        end_round(s);
    atomic_fetch_add_explicit(&lapse_subscribers.delivered, count,
                              memory_order_relaxed);
    return count;
}

/* Nothing waits: let the next push write to the eventfd again. */
static void fd_rearm(struct subscriber *s)
{
    int fd = atomic_load_explicit(&s->fd, memory_order_relaxed);
    uint64_t drop = 1;

    if (!fd_is_ours(fd))
        return;
    sys(SYS_read, fd, &drop, sizeof(drop));
    /* seq_cst W3: armed, then looked once more; see wake.c */
    atomic_store_explicit(&s->fd_armed, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&s->queue.word, memory_order_seq_cst) !=
        queue_idle(subscriber_generation(s))) {
        drop = 1;
        sys(SYS_write, fd, &drop, sizeof(drop));
    }
}

static inline int poll(lapse_handle h, struct lapse_event *events, size_t n)
{
    struct subscriber *s;
    size_t count;
    int err = subscriber_lock(h, &s);

    if (err)
        return err;
    if (!events || !n ||
        atomic_load_explicit(&s->delivery, memory_order_relaxed) !=
            LAPSE_POLL) {
        lock_drop(&s->lock);
        return -EINVAL;
    }
    count = poll_collect(s, events, n > INT32_MAX ? INT32_MAX : n,
                         COLLECT_POLL);
    fd_rearm(s);
    lock_drop(&s->lock);
    return (int)count;
}

/* -errno */
static int fd_new(void)
{
    long fd = sys(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK);
    long err = fd < 0 ? fd : sys(SYS_fcntl, fd, F_SETSIG, FD_MARK);

    if (fd >= 0 && err) {
        sys(SYS_close, fd);
        return (int)err;
    }
    return (int)fd;
}

static __attribute__((noinline)) int
poll_watched(lapse_handle h, struct lapse_event *events, size_t n)
{
    struct call *call = call_enter(CALL_POLL, h.index, 0);
    int count = poll(h, events, n);

    call_leave(call);
    return count;
}

/* Apart, so that it costs one look when there is no watchdog. */
int lapse_poll(lapse_handle h, struct lapse_event *events, size_t n)
{
    if (__builtin_expect(lapse_config.watchdog, 0))
        return poll_watched(h, events, n);
    return poll(h, events, n);
}

int lapse_fd(lapse_handle h)
{
    struct subscriber *s;
    int fd, err = subscriber_lock(h, &s);

    if (err)
        return err;
    fd = atomic_load_explicit(&s->fd, memory_order_relaxed);
    if (atomic_load_explicit(&s->delivery, memory_order_relaxed) !=
        LAPSE_POLL) {
        fd = -EINVAL;
    } else if (!fd_is_ours(fd)) {
        fd = fd_new();
        if (fd >= 0) {
            atomic_store_explicit(&s->fd, fd, memory_order_release);
            fd_rearm(s);
        }
    }
    lock_drop(&s->lock);
    return fd;
}

void poll_rebuild(struct subscriber *s)
{
    if (lapse_hint.depth)
        return; /* we are inside a hook, which may hold a record */
    for (uint32_t i = 1; i <= s->pool.size; i++)
        pool_at(&s->pool, i)->taken = 0;
    for (uint32_t i = s->first; i; i = next_of(pool_at(&s->pool, i)))
        pool_at(&s->pool, i)->taken = 1;
    pool_rebuild(&s->pool);
}

void poll_drop_fd(struct subscriber *s)
{
    int fd = atomic_exchange_explicit(&s->fd, -1, memory_order_relaxed);

    /* The counter is shared with the parent: it goes on with it alone. */
    if (fd_is_ours(fd))
        sys(SYS_close, fd);
    atomic_store_explicit(&s->fd_armed, 0, memory_order_relaxed);
}

void poll_fork_child(struct subscriber *s)
{
    poll_drop_fd(s);
    poll_take(s);
    if (s->overflow)
        queue_mark(&s->queue, QUEUE_HELD, 0);
    poll_rebuild(s);
}
