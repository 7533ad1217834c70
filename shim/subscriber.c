/* SPDX-License-Identifier: BSD-3-Clause */
/* lapse_subscribe, lapse_unsubscribe, and what a handle is. */
#include "subscriber.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <unistd.h>

#include "backstop.h"
#include "config.h"
#include "drain.h"
#include "fork.h"
#include "hold.h"
#include "inflight.h"
#include "meet.h"
#include "poll.h"
#include "release.h"
#include "trace.h"
#include "wake.h"
#include "watchdog.h"

bool subscriber_second_copy;

int subscriber_check(lapse_handle h)
{
    struct subscriber *s;
    uint32_t now;

    if (h.index >= SUBSCRIBERS_MAX || !h.generation)
        return -EBADF;
    s = &lapse_subscribers.one[h.index];
    if (h.word != (const uint64_t *)&s->queue.word)
        return -EBADF;
    now = subscriber_generation(s);
    if (h.generation == now)
        return 0;
    /* serial arithmetic: the generation may have wrapped */
    return (int32_t)(h.generation - now) < 0 ? -ESTALE : -EBADF;
}

int subscriber_lock(lapse_handle h, struct subscriber **out)
{
    struct subscriber *s;
    int err = subscriber_check(h);

    if (!err && fork_was_raw())
        err = -ECHILD;
    if (err)
        return err;
    drainer_revive();
    watchdog_need();
    if (lapse_backstop)
        lapse_backstop->revive();
    s = &lapse_subscribers.one[h.index];
    err = lock_take(&s->lock);
    if (err)
        return err;
    /* again, now that it cannot change; the generation of a slot that is not
     * live was never handed out */
    err = subscriber_check(h);
    if (!err && s->state != SUBSCRIBER_LIVE)
        err = -EBADF;
    if (err)
        lock_drop(&s->lock);
    *out = s;
    return err;
}

static int check_how(const struct lapse_subscription *how)
{
    if (!how || how->size < sizeof(*how) || how->spare ||
        how->delivery > LAPSE_INLINE ||
        (how->flags & ~(LAPSE_ALL | LAPSE_FORK_KEEP)) ||
        (how->delivery == LAPSE_POLL) != !how->callback)
        return -EINVAL;
    if ((how->reasons & LAPSE_MASK(LAPSE_REASON_FREE)) && !lapse_free_seen)
        return -ENOTSUP;
    if (how->reasons & ~(LAPSE_MASK_ALL | LAPSE_MASK(LAPSE_REASON_FREE)))
        return -EINVAL;
    return 0;
}

/* This record and all behind it. */
static void give_all(struct subscriber *s, uint32_t index)
{
    while (index) {
        struct record *r = pool_at(&s->pool, index);

        index = atomic_load_explicit(&r->next, memory_order_relaxed);
        pool_give(&s->pool, r);
    }
}

/* Nobody sees it any more: what is queued goes back, its handle is stale. */
static void hide(struct subscriber *s)
{
    uint32_t generation = subscriber_generation(s) + 1;
    uint64_t word;

    if (!generation)
        generation = 1;
    /* seq_cst N2: see call_inline */
    atomic_fetch_and_explicit(&lapse_live,
                              ~((uint64_t)1 << (s - lapse_subscribers.one)),
                              memory_order_seq_cst);
    word = atomic_exchange_explicit(&s->queue.word, queue_idle(generation),
                                    memory_order_seq_cst);
    give_all(s, (uint32_t)(word & QUEUE_INDEX));
}

/* And all that it has. */
static void retire(struct subscriber *s)
{
    uintptr_t low = atomic_load_explicit(&s->filter.low, memory_order_relaxed);
    uintptr_t high =
        atomic_load_explicit(&s->filter.high, memory_order_relaxed);
    int fd = atomic_exchange_explicit(&s->fd, -1, memory_order_relaxed);

    trace_tell(TRACE_NO_SLOT, TRACE_UNWATCH, 0, s,
               &(struct lapse_event){.len = SIZE_MAX}); /* it is over */
    hide(s);
    give_all(s, s->first);
    s->first = s->last = s->cursor = 0;
    filter_clear(&s->filter);
    if (lapse_backstop && high)
        lapse_backstop->unwatch(low, high);
    s->state = SUBSCRIBER_LEAVING;
    if (fd_is_ours(fd))
        sys(SYS_close, fd);
}

/* May it be used? With its lock held. */
static bool is_over(struct subscriber *s)
{
    if (s->cut && !atomic_load_explicit(&s->deliverer, memory_order_relaxed)) {
        s->cut = false;
        retire(s);
        s->state = SUBSCRIBER_FREE;
    }
    return s->state == SUBSCRIBER_FREE;
}

/* One whose lock is free, if it can be: who just unsubscribed may stand still
 * before dropping it, and we hold the registry. */
static struct subscriber *free_one(void)
{
    struct subscriber *busy = NULL;

    for (unsigned i = 0; i < SUBSCRIBERS_MAX; i++) {
        struct subscriber *s = &lapse_subscribers.one[i];
        uint32_t state = atomic_load_explicit(&s->state, memory_order_relaxed);
        bool over;

        if (state == SUBSCRIBER_LIVE)
            continue;
        if (lock_try(&s->lock)) {
            over = is_over(s);
            lock_drop(&s->lock);
            if (over)
                return s;
        } else if (state == SUBSCRIBER_FREE) {
            busy = s;
        }
    }
    return busy;
}

/* With its lock and the registry held. */
static void fill(struct subscriber *s, const struct lapse_subscription *how,
                 void *module)
{
    uint64_t word;
    uint32_t generation = subscriber_generation(s);

    if (!generation) /* first use, or wrapped */
        generation = 1;
    s->flags = how->flags;
    s->first = s->last = s->cursor = 0;
    s->round = 1;
    s->overflow = false;
    s->overflow_told = 0;
    s->module = module;
    s->index = (uint32_t)(s - lapse_subscribers.one);
    atomic_store_explicit(&s->reasons,
                          how->reasons ? how->reasons : LAPSE_MASK_ALL,
                          memory_order_relaxed);
    atomic_store_explicit(&s->all, how->flags & LAPSE_ALL,
                          memory_order_relaxed);
    atomic_store_explicit(&s->arg, how->arg, memory_order_relaxed);
    atomic_store_explicit(&s->callback, how->callback, memory_order_release);
    atomic_store_explicit(&s->delivery, (uint8_t)how->delivery,
                          memory_order_relaxed);
    /* Release S1: the drainer reads both without the lock (wants_callback) */
    atomic_store_explicit(&s->state, SUBSCRIBER_LIVE, memory_order_release);
    atomic_store_explicit(&s->fd, -1, memory_order_relaxed);
    atomic_store_explicit(&s->fd_armed, 0, memory_order_relaxed);
    word = queue_idle(generation);
    atomic_store_explicit(&s->queue.word, word, memory_order_release);
    /* seq_cst: from here on hooks see it, before the look at the releases in
     * flight below (I2 in inflight.h, for LAPSE_ALL) */
    atomic_fetch_or_explicit(&lapse_live,
                             (uint64_t)1 << (s - lapse_subscribers.one),
                             memory_order_seq_cst);
}

int lapse_subscribe(const struct lapse_subscription *how, lapse_handle *out)
{
    struct subscriber *s;
    void *module;
    int err = check_how(how);

    if (!err && !out)
        err = -EINVAL;
    if (!err && subscriber_second_copy)
        err = -EEXIST;
    if (!err && fork_was_raw())
        err = -ECHILD;
    if (err)
        return err;
    module = module_hold((const void *)(uintptr_t)how->callback);
    err = lock_take(&lapse_subscribers.registry);
    if (err)
        goto out;
    fork_mark();
    s = free_one();
    err = s ? pool_open(&s->pool, lapse_config.records) : -ENOSPC;
    if (!err && lapse_backstop)
        lapse_backstop->start();
    if (!err)
        err = lock_take(&s->lock);
    if (err) {
        lock_drop(&lapse_subscribers.registry);
        goto out;
    }
    if (!atomic_load_explicit(&lapse_live, memory_order_seq_cst))
        release_hull_reset();
    if (how->flags & LAPSE_ALL) {
        release_hull_widen(0, USER_END);
        release_free_widen(how->reasons, 0, USER_END);
    }
    fill(s, how, module);
    if (how->flags & LAPSE_ALL)
        meet_in_flight(s, 0, USER_END);
    *out = (lapse_handle){.word = (const uint64_t *)&s->queue.word,
                          .generation = subscriber_generation(s),
                          .index = (uint32_t)(s - lapse_subscribers.one)};
    lock_drop(&s->lock);
    lock_drop(&lapse_subscribers.registry);
    if (lapse_backstop)
        lapse_backstop->joined();
    watchdog_need();
    /* After it is live: one that is there does not leave any more. */
    if (how->delivery == LAPSE_CALLBACK && (err = drainer_start()))
        lapse_unsubscribe(*out);
    return err;
out:
    if (module)
        dlclose(module);
    return err;
}

/* Wait until no hook of another thread runs an INLINE handler of it. */
static void wait_inline(unsigned index)
{
    uintptr_t self = thread_self();

    for (unsigned i = 0; i < IN_FLIGHT_SLOTS; i++) {
        struct in_flight *f = &lapse_in_flight.slot[i];

        /* seq_cst N2, acquire of N3 */
        while ((atomic_load_explicit(&f->inlining, memory_order_seq_cst) >>
                    index &
                1) &&
               atomic_load_explicit(&f->owner, memory_order_relaxed) != self)
            sys(SYS_sched_yield);
    }
    /* Releases without a slot may be calling it too. */
    while (!lapse_hint.depth &&
           atomic_load_explicit(&lapse_in_flight.unslotted,
                                memory_order_seq_cst))
        sys(SYS_sched_yield);
}

void subscriber_finish(struct subscriber *s)
{
    void *module = s->module;

    if (s->cut)
        retire(s);
    s->cut = false;
    s->module = NULL;
    s->state = SUBSCRIBER_FREE;
    atomic_store_explicit(&s->callback, NULL, memory_order_release);
    lock_drop(&s->lock);
    wake_drainer(); /* it leaves when nobody wants a callback any more */
    if (module)
        dlclose(module);
}

static int unsubscribe(lapse_handle h)
{
    struct subscriber *s;
    uintptr_t busy;
    int err = subscriber_lock(h, &s);

    if (err)
        return err;
    retire(s);
    if (atomic_load_explicit(&s->delivery, memory_order_relaxed) ==
        LAPSE_INLINE)
        wait_inline((unsigned)(s - lapse_subscribers.one));
    for (;;) {
        uint32_t turn =
            atomic_load_explicit(&s->deliverer_turn, memory_order_acquire);

        busy = atomic_load_explicit(&s->deliverer, memory_order_acquire);
        if (!busy) {
            subscriber_finish(s);
            return 0;
        }
        lock_drop(&s->lock);
        if (busy == thread_self())
            return 0; /* from its own callback: deliver() finishes it */
        sys(SYS_futex, &s->deliverer_turn, FUTEX_WAIT_PRIVATE, turn, 0);
        if (lock_take(&s->lock))
            return 0;
        if (s->state != SUBSCRIBER_LEAVING ||
            subscriber_generation(s) != h.generation + 1) {
            lock_drop(&s->lock); /* deliver() finished it */
            return 0;
        }
    }
}

int lapse_unsubscribe(lapse_handle h)
{
    struct call *call = call_enter(CALL_UNSUBSCRIBE, h.index, 0);
    int err = unsubscribe(h);

    call_leave(call);
    watchdog_wake();
    return err;
}

/* Its lists and its filter may be anything: they are not looked at again. */
static void forget(struct subscriber *s)
{
    s->first = s->last = s->cursor = 0;
    queue_take(&s->queue, 0, 0);
    atomic_store_explicit(&s->filter.root, NULL, memory_order_relaxed);
    /* nor is anything being removed from it: odd was "it may be watched" */
    atomic_store_explicit(&s->filter.removing, 0, memory_order_relaxed);
    poll_rebuild(s);
}

/* Not to be touched but by what hooks may do. */
static void fork_child_in_use(struct subscriber *s, bool lost)
{
    poll_drop_fd(s);
    if (lost)
        release_overflow((uint64_t)1 << (s - lapse_subscribers.one));
    if (s->flags & LAPSE_FORK_KEEP)
        return;
    hide(s);
    s->module = NULL; /* stays loaded */
    s->cut = true;
    s->state = SUBSCRIBER_LEAVING;
}

void subscriber_fork_child(struct subscriber *s, enum subscriber_found how)
{
    uintptr_t busy =
        atomic_load_explicit(&s->deliverer, memory_order_relaxed);
    bool lost = busy && busy != thread_self(), broken = how == FOUND_BROKEN;

    if (lost) {
        atomic_store_explicit(&s->deliverer, 0, memory_order_relaxed);
        /* we may be about to wait for its end: a handler forked */
        atomic_fetch_add_explicit(&s->deliverer_turn, 1, memory_order_relaxed);
    }
    if (how == FOUND_BEGUN)
        return;
    if (broken)
        forget(s);
    if (s->state == SUBSCRIBER_LEAVING && (lost || (broken && !busy))) {
        s->state = SUBSCRIBER_FREE; /* its last callback is not here; the
                                       module stays loaded */
        s->module = NULL;
    }
    if (s->state != SUBSCRIBER_LIVE)
        return;
    if (how == FOUND_IN_USE) {
        fork_child_in_use(s, lost);
        return;
    }
    if (broken || !(s->flags & LAPSE_FORK_KEEP)) {
        retire(s);
        if (busy != thread_self())
            s->state = SUBSCRIBER_FREE;
        return;
    }
    /* Events that another thread had taken and not yet told are lost here. */
    if (lost) {
        s->overflow = true;
        s->overflow_told = 0;
    }
    poll_fork_child(s);
}
