/* SPDX-License-Identifier: BSD-3-Clause */
/* Who delivers: the drainer thread, lapse_sync, lapse_drain. */
#include "drain.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "backstop.h"
#include "fork.h"
#include "poll.h"
#include "release.h"
#include "subscriber.h"
#include "thread.h"
#include "wake.h"
#include "watchdog.h"

#define BATCH 32
/* How often to look while an open record waits to be told again, or a turn to
 * be given back. */
#define HELD_TICK_NS 1000000

static _Atomic uintptr_t drainer; /* its thread pointer, 0 = none */
static _Atomic uint32_t revive;   /* one is wanted, and there is none */

/* Does this thread run a callback now? */
static bool in_callback(void)
{
    for (unsigned i = 0; i < SUBSCRIBERS_MAX; i++)
        if (atomic_load_explicit(&lapse_subscribers.one[i].deliverer,
                                 memory_order_relaxed) == thread_self())
            return true;
    return false;
}

static bool turn_is_taken(struct subscriber *s)
{
    return atomic_load_explicit(&s->deliverer, memory_order_relaxed) != 0;
}

/* Get the turn to call back for s; its lock is held, and again on return. The
 * turn lies outside the lock, so that callbacks run with no lock of ours. */
static void turn_take(struct subscriber *s)
{
    for (;;) {
        uint32_t turn =
            atomic_load_explicit(&s->deliverer_turn, memory_order_acquire);

        if (!turn_is_taken(s))
            break;
        lock_drop(&s->lock);
        sys(SYS_futex, &s->deliverer_turn, FUTEX_WAIT_PRIVATE, turn, 0);
        lock_take(&s->lock);
    }
    atomic_store_explicit(&s->deliverer, thread_self(), memory_order_relaxed);
}

/* Release D1: pairs with the acquires of who waits for the turn. */
static void turn_drop(struct subscriber *s)
{
    atomic_store_explicit(&s->deliverer, 0, memory_order_release);
    atomic_fetch_add_explicit(&s->deliverer_turn, 1, memory_order_release);
    futex_wake(&s->deliverer_turn, INT32_MAX);
}

static void call_back(struct subscriber *s, const struct lapse_event *events,
                      size_t n, uint32_t generation)
{
    lapse_callback callback =
        atomic_load_explicit(&s->callback, memory_order_acquire);
    void *arg = atomic_load_explicit(&s->arg, memory_order_relaxed);

    /* Its own callback may unsubscribe it: none may follow then. */
    for (size_t i = 0; i < n && subscriber_generation(s) == generation; i++) {
        struct call *call =
            call_enter(CALL_CALLBACK, s->index, (uintptr_t)callback);

        callback(&events[i], arg);
        call_leave(call);
    }
}

/*
 * One round of callbacks for s, whose lock is held and is dropped in here.
 * Another thread's turn is waited for.
 */
static void deliver(struct subscriber *s, enum collect mode)
{
    struct lapse_event events[BATCH];
    uint32_t generation = subscriber_generation(s);
    size_t n = BATCH;

    turn_take(s);
    if (mode == COLLECT_SYNC) {
        backstop_settle(s);
        poll_rewind(s);
        poll_take(s);
    }
    while (n == BATCH && s->state == SUBSCRIBER_LIVE &&
           subscriber_generation(s) == generation) {
        n = poll_collect(s, events, BATCH, mode);
        lock_drop(&s->lock);
        call_back(s, events, n, generation);
        lock_take(&s->lock);
    }
    turn_drop(s);
    if (s->state == SUBSCRIBER_LEAVING)
        subscriber_finish(s);
    else
        lock_drop(&s->lock);
}

static bool wants_callback(struct subscriber *s)
{
    return s->state == SUBSCRIBER_LIVE &&
           atomic_load_explicit(&s->delivery, memory_order_relaxed) ==
               LAPSE_CALLBACK;
}

/* The flags of what waits. */
static uint64_t pending(struct subscriber *s)
{
    /* seq_cst W2: after "asleep" was said; see wake.c */
    return atomic_load_explicit(&s->queue.word, memory_order_seq_cst) &
           (QUEUE_INDEX | QUEUE_OVERFLOW | QUEUE_HELD);
}

static bool is_live(unsigned i)
{
    return atomic_load_explicit(&lapse_live, memory_order_seq_cst) >> i & 1;
}

/* Deliver what waits. Says whether a CALLBACK subscriber is there at all.
 * Nobody's turn is waited for: one callback that takes its time holds up no
 * other's. */
static bool drain_round(void)
{
    bool any = false;

    for (unsigned i = 0; i < SUBSCRIBERS_MAX; i++) {
        struct subscriber *s = &lapse_subscribers.one[i];

        if (!is_live(i) || lock_take(&s->lock))
            continue;
        if (!wants_callback(s)) {
            lock_drop(&s->lock);
            continue;
        }
        any = true;
        if (pending(s) && !turn_is_taken(s))
            deliver(s, COLLECT_DRAIN);
        else
            lock_drop(&s->lock);
    }
    return any;
}

/*
 * Is there a reason not to sleep: records, or nobody left to sleep for? Held is
 * what must be looked at again: what is kept back to be told once more, and the
 * records of another's turn, which may have looked before they came. By the end
 * of a round it may be too early to say: who syncs takes records meanwhile, and
 * keeps some. Who is about to unsubscribe is not live, but slept for until he
 * has done it and wakes us (subscriber_finish).
 */
static bool anything_new(bool *held)
{
    bool any = false;

    *held = false;
    for (unsigned i = 0; i < SUBSCRIBERS_MAX; i++) {
        struct subscriber *s = &lapse_subscribers.one[i];
        uint64_t flags;

        if (!wants_callback(s))
            continue;
        any = true;
        flags = is_live(i) ? pending(s) : 0;
        if (flags & (QUEUE_INDEX | QUEUE_OVERFLOW) && !turn_is_taken(s))
            return true;
        if (flags)
            *held = true;
    }
    return !any;
}

static void sleep_until_told(void)
{
    static const struct timespec tick = {.tv_nsec = HELD_TICK_NS};
    bool held;

    atomic_store_explicit(&lapse_drainer_asleep, 1, memory_order_seq_cst);
    if (!anything_new(&held))
        sys(SYS_futex, &lapse_drainer_asleep, FUTEX_WAIT_PRIVATE, 1,
            held ? &tick : NULL);
    atomic_store_explicit(&lapse_drainer_asleep, 0, memory_order_relaxed);
}

static unsigned callbacks(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < SUBSCRIBERS_MAX; i++)
        n += wants_callback(&lapse_subscribers.one[i]);
    return n;
}

static bool may_leave(void)
{
    bool leave;

    lock_take(&lapse_subscribers.registry);
    leave = !callbacks();
    if (leave)
        atomic_store_explicit(&drainer, 0, memory_order_relaxed);
    lock_drop(&lapse_subscribers.registry);
    return leave;
}

/*
 * A callback that forks leaves a child where this thread is the program's only
 * one, and is counted (thread.c). It ends, so that a child where nobody else
 * runs does: all signals are blocked in it. Another one calls back then.
 */
static bool is_forked(void)
{
    return atomic_load_explicit(&drainer, memory_order_relaxed) !=
           thread_self();
}

static void *drainer_main(void *unused)
{
    bool any;

    (void)unused;
    release_test_delay(0);
    atomic_store_explicit(&drainer, thread_self(), memory_order_relaxed);
    pthread_setname_np(pthread_self(), "lapse-drainer");
    release_test_delay(0);
    for (;;) {
        any = drain_round();
        if (is_forked())
            return NULL;
        if (!any && may_leave()) {
            release_test_delay(0);
            return NULL;
        }
        sleep_until_told();
    }
}

/* With no lock of ours held: who makes a thread allocates, and takes locks of
 * libc that others hold while they do; fork waits for ours with an allocator's
 * lock held. Not 0 while it is made: it may not have run when the next one
 * asks. */
int drainer_start(void)
{
    static const struct lapse_thread thread = {.start = drainer_main};
    uintptr_t none = 0;

    /* relaxed: nothing is handed over but who makes it */
    if (!atomic_compare_exchange_strong_explicit(
            &drainer, &none, 1, memory_order_relaxed, memory_order_relaxed))
        return 0;
    if (!lapse_thread_start(&thread, NULL))
        return 0;
    atomic_store_explicit(&drainer, 0, memory_order_relaxed);
    /* Others may have relied on this one: the next call tries again. */
    atomic_store_explicit(&revive, 1, memory_order_relaxed);
    return -EAGAIN;
}

void drainer_fork_child(void)
{
    atomic_store_explicit(&lapse_drainer_asleep, 0, memory_order_relaxed);
    atomic_store_explicit(&drainer, 0, memory_order_relaxed);
    /* also of who had subscribed, and was about to make one */
    atomic_store_explicit(&revive, callbacks() > 0, memory_order_relaxed);
}

void drainer_revive(void)
{
    /* relaxed: set while there was one thread, or by who could not start it */
    if (atomic_load_explicit(&revive, memory_order_relaxed) &&
        atomic_exchange_explicit(&revive, 0, memory_order_relaxed) &&
        callbacks())
        drainer_start();
}

static int sync(lapse_handle h)
{
    struct subscriber *s;
    int err = subscriber_check(h);

    if (err)
        return err;
    if (in_callback())
        return -EDEADLK;
    err = subscriber_lock(h, &s);
    if (err)
        return err;
    if (wants_callback(s)) {
        deliver(s, COLLECT_SYNC);
        return 0;
    }
    if (atomic_load_explicit(&s->delivery, memory_order_relaxed) ==
        LAPSE_POLL)
        err = lapse_pending(h) ? -EAGAIN : 0;
    lock_drop(&s->lock);
    return err;
}

int lapse_sync(lapse_handle h)
{
    struct call *call = call_enter(CALL_SYNC, h.index, 0);
    int err = sync(h);

    call_leave(call);
    return err;
}

static int drain(void)
{
    if (in_callback())
        return -EDEADLK;
    if (fork_was_raw())
        return -ECHILD;
    drainer_revive();
    watchdog_need();
    if (lapse_backstop)
        lapse_backstop->revive();
    for (unsigned i = 0; i < SUBSCRIBERS_MAX; i++) {
        struct subscriber *s = &lapse_subscribers.one[i];

        if (lock_take(&s->lock))
            return -EDEADLK;
        if (wants_callback(s))
            deliver(s, COLLECT_SYNC);
        else
            lock_drop(&s->lock);
    }
    return 0;
}

int lapse_drain(void)
{
    struct call *call = call_enter(CALL_DRAIN, 0, 0);
    int err = drain();

    call_leave(call);
    return err;
}
