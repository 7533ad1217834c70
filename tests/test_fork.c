/* SPDX-License-Identifier: BSD-3-Clause */
/* What a forked child finds. It says by its exit code which check failed. */
#include "shim/fork.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/poll.h> /* <poll.h> would be shim/poll.h */
#include <sys/wait.h>
#include <unistd.h>

#include "shim/lock.h"
#include "shim/poll.h"
#include "shim/subscriber.h"
#include "tests/unit.h"

TestSuite(fork, .init = unit_start);

/* The child makes a thread, as it may. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}

#define IN_CHILD(x)          \
    do {                     \
        if (!(x))            \
            _exit(__LINE__ % 256); \
    } while (0)

static void expect_child(pid_t pid)
{
    int status;

    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status), "killed by %d", WTERMSIG(status));
    cr_assert_eq(WEXITSTATUS(status), 0, "failed in line %d (modulo 256)",
                 WEXITSTATUS(status));
}

static pid_t forked(void)
{
    pid_t pid = fork();

    cr_assert_geq(pid, 0);
    if (!pid)
        alarm(5); /* a hang is a failure as any other */
    return pid;
}

static bool idle_after_one(lapse_handle h, struct lapse_event *e)
{
    return lapse_pending(h) && lapse_poll(h, e, 1) == 1 &&
           lapse_poll(h, e + 1, 1) == 0 && !lapse_pending(h);
}

/* A subscriber with a watch and one event that waits; then a fork. */
static pid_t forked_with_one_waiting(uint32_t flags, lapse_handle *h)
{
    *h = unit_poller(flags);
    lapse_watch(*h, unit_at(0), 1);
    lapse_publish(unit_at(0), 1);
    return forked();
}

Test(fork, drops_who_did_not_ask)
{
    struct lapse_event e[2];
    lapse_handle h;
    pid_t pid = forked_with_one_waiting(LAPSE_ALL, &h);

    if (!pid) {
        IN_CHILD(lapse_poll(h, e, 1) == -ESTALE);
        IN_CHILD(lapse_watch(h, unit_at(0), 1) == -ESTALE);
        IN_CHILD(lapse_unsubscribe(h) == -ESTALE);
        IN_CHILD(lapse_pending(h));
        h = unit_poller(0);
        IN_CHILD(lapse_publish(unit_at(0), 1) == 0);
        IN_CHILD(!lapse_pending(h)); /* the watch is gone as well */
        _exit(0);
    }
    expect_child(pid);
    cr_assert(idle_after_one(h, e), "the parent's is as it was");
}

Test(fork, keeps_who_asked)
{
    struct lapse_event e[2];
    lapse_handle h;
    pid_t pid = forked_with_one_waiting(LAPSE_FORK_KEEP, &h);

    if (!pid) {
        IN_CHILD(idle_after_one(h, e));
        lapse_publish(unit_at(1), 1);
        IN_CHILD(!lapse_pending(h));
        lapse_publish(unit_at(0), 1);
        IN_CHILD(idle_after_one(h, e));
        IN_CHILD(lapse_unsubscribe(h) == 0);
        _exit(0);
    }
    expect_child(pid);
    cr_assert(idle_after_one(h, e));
    cr_assert(!lapse_pending(h), "the child's releases are not ours");
}

/* No handler ran there, so a lock of another thread may be held for ever. */
Test(fork, refuses_a_child_that_was_made_by_hand)
{
    struct lapse_subscription how = {.size = sizeof(how)};
    lapse_handle h = unit_poller(LAPSE_ALL | LAPSE_FORK_KEEP), other;
    struct lapse_event e[2];
    pid_t pid = _Fork();

    if (!pid) {
        IN_CHILD(lapse_poll(h, e, 2) == -ECHILD);
        IN_CHILD(lapse_watch(h, unit_at(0), 1) == -ECHILD);
        IN_CHILD(lapse_subscribe(&how, &other) == -ECHILD);
        IN_CHILD(lapse_drain() == -ECHILD);
        _exit(0);
    }
    expect_child(pid);
    cr_assert_eq(lapse_poll(h, e, 2), 0, "the parent is as it was");
}

static bool nest;

/* As a signal handler in the middle of a fork. */
static void nested(void)
{
    pid_t pid;

    if (!nest)
        return;
    nest = false;
    pid = fork();
    if (!pid)
        _exit(0);
    waitpid(pid, NULL, 0);
}

/* Registered before ours: called when we have done our part. */
static __attribute__((constructor)) void atfork_first(void)
{
    pthread_atfork(nested, NULL, NULL);
}

/* Signals are not blocked then. */
Test(fork, leaves_no_lock_where_nobody_subscribed)
{
    pid_t pid;

    nest = true;
    pid = forked();
    if (!pid)
        _exit(!!lapse_subscribers.registry.owner);
    expect_child(pid);
    cr_assert(!nest);
    cr_expect_eq(lapse_subscribers.registry.owner, 0);
    for (unsigned i = 0; i < SUBSCRIBERS_MAX; i++)
        cr_expect_eq(lapse_subscribers.one[i].lock.owner, 0);
}

static struct lock *held;

static void *hold_it(void *barrier)
{
    lock_take(held);
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    lock_drop(held);
    return barrier;
}

/* In a child of fork() in a child that was made by hand: what the end of this
 * subscription says there, and 1 if another one cannot be had. */
static int grandchild_says(lapse_handle h)
{
    struct lapse_subscription how = {.size = sizeof(how)};
    lapse_handle other;
    pid_t pid = _Fork();
    int status;

    if (!pid) {
        alarm(5);
        pid = fork();
        if (!pid) {
            alarm(5);
            _exit(lapse_subscribe(&how, &other) ? 1 : -lapse_unsubscribe(h));
        }
        _exit(waitpid(pid, &status, 0) == pid && WIFEXITED(status)
                  ? WEXITSTATUS(status)
                  : 2);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status), "killed by %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

/* A lock that nobody gives back there holds nobody up. */
Test(fork, goes_on_in_a_child_that_was_made_by_hand)
{
    lapse_handle h = unit_poller(LAPSE_FORK_KEEP);
    pthread_barrier_t barrier;
    pthread_t thread;

    cr_expect_eq(grandchild_says(h), 0);
    pthread_barrier_init(&barrier, NULL, 2);
    held = &lapse_subscribers.one[h.index].lock;
    pthread_create(&thread, NULL, hold_it, &barrier);
    pthread_barrier_wait(&barrier);
    cr_expect_eq(grandchild_says(h), ESTALE);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
}

/* The thread that would end it is not there. */
Test(fork, closes_what_others_had_open)
{
    lapse_handle h = unit_poller(LAPSE_ALL | LAPSE_FORK_KEEP);
    struct lapse_event e[2];
    struct unit_opener o;
    pid_t pid;

    unit_open(&o, unit_at(0), 1);
    lapse_poll(h, e, 2);
    cr_assert_eq(e[0].flags, LAPSE_EVENT_OPEN);
    pid = forked();
    if (!pid) {
        IN_CHILD(idle_after_one(h, e));
        IN_CHILD(e[0].addr == (uintptr_t)unit_at(0));
        IN_CHILD(e[0].flags == 0);
        for (int i = 0; i < 2 * UNIT_RECORDS; i++) { /* no record is lost */
            lapse_publish(unit_at(1), 1);
            IN_CHILD(idle_after_one(h, e));
            IN_CHILD(e[0].addr == (uintptr_t)unit_at(1));
        }
        _exit(0);
    }
    expect_child(pid);
    cr_assert_eq(lapse_poll(h, e, 2), 1);
    cr_assert_eq(e[0].flags, LAPSE_EVENT_OPEN, "in the parent it runs on");
    unit_close(&o);
    cr_assert_eq(lapse_poll(h, e, 2), 1);
    cr_assert(!lapse_pending(h));
}

/* Met by a watch, it has a record that its holder knows nothing of. */
Test(fork, closes_what_a_watch_met)
{
    lapse_handle h = unit_poller(LAPSE_FORK_KEEP);
    struct lapse_event e[2];
    struct unit_opener o;
    pid_t pid;

    unit_open(&o, unit_at(0), 1);
    lapse_watch(h, unit_at(0), 1);
    pid = forked();
    if (!pid) {
        IN_CHILD(idle_after_one(h, e));
        IN_CHILD(e[0].flags == 0);
        _exit(0);
    }
    expect_child(pid);
    unit_close(&o);
}

Test(fork, ends_the_overflow_of_what_others_had_open)
{
    lapse_handle h = unit_poller(LAPSE_ALL | LAPSE_FORK_KEEP);
    struct lapse_event e[2];
    struct unit_opener o;
    pid_t pid;

    for (int i = 0; i < UNIT_RECORDS; i++)
        lapse_publish(unit_at(i), 1);
    unit_open(&o, unit_at(0), 1); /* gets no record */
    lapse_poll(h, e, 2);
    cr_assert_eq(e[0].reason, LAPSE_REASON_OVERFLOW);
    pid = forked();
    if (!pid) {
        IN_CHILD(idle_after_one(h, e));
        IN_CHILD(e[0].reason == LAPSE_REASON_OVERFLOW);
        _exit(0);
    }
    expect_child(pid);
    cr_assert(lapse_pending(h));
    unit_close(&o);
}

/* By a thread that is stopped, or waits for what fork holds. */
Test(fork, goes_on_where_a_lock_is_never_given_back, .timeout = 30)
{
    lapse_handle stuck = unit_poller(LAPSE_ALL | LAPSE_FORK_KEEP);
    lapse_handle h = unit_poller(LAPSE_ALL | LAPSE_FORK_KEEP);
    struct lapse_event e[2];
    pthread_barrier_t barrier;
    pthread_t thread;
    pid_t pid;

    pthread_barrier_init(&barrier, NULL, 2);
    held = &lapse_subscribers.one[stuck.index].lock;
    pthread_create(&thread, NULL, hold_it, &barrier);
    pthread_barrier_wait(&barrier);
    /* in the middle of lapse_unwatch() */
    lapse_subscribers.one[stuck.index].filter.removing++;
    pid = forked();
    if (!pid) {
        IN_CHILD(lapse_poll(stuck, e, 2) == -ESTALE);
        stuck = unit_poller(0);
        lapse_watch(stuck, unit_at(0), 1);
        lapse_watch(stuck, unit_at(9), 1);
        lapse_publish(unit_at(5), 1);
        IN_CHILD(!lapse_pending(stuck));
        lapse_poll(h, e, 2);
        lapse_publish(unit_at(0), 1);
        IN_CHILD(idle_after_one(h, e));
        _exit(0);
    }
    expect_child(pid);
    lapse_subscribers.one[stuck.index].filter.removing--;
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    lapse_publish(unit_at(0), 1);
    cr_assert_eq(lapse_poll(stuck, e, 2), 1, "the parent's is as it was");
}

static pthread_barrier_t all_ready;

/* As a signal handler that interrupted who holds that lock. */
static void *fork_as_owner(void *handles)
{
    lapse_handle *h = handles;
    struct lock *own = &lapse_subscribers.one[h[0].index].lock;
    struct lapse_event e[2];
    pid_t pid;
    int other;

    lock_take(own);
    pthread_barrier_wait(&all_ready);
    pid = forked();
    lock_drop(own);
    if (!pid) {
        other = lapse_poll(h[1], e, 2);
        IN_CHILD(lapse_poll(h[0], e, 2) == 0);
        IN_CHILD(other == 0 || other == -ESTALE);
        h[1] = unit_poller(LAPSE_ALL);
        lapse_publish(unit_at(0), 1);
        IN_CHILD(idle_after_one(h[0], e) && idle_after_one(h[1], e));
        _exit(0);
    }
    expect_child(pid);
    return NULL;
}

/* It goes on with what it has in hand; what is over is given back after it. */
Test(fork, ends_what_it_interrupted_when_that_is_over)
{
    lapse_handle h = unit_poller(LAPSE_ALL), next;
    struct lapse_subscription how = {.size = sizeof(how)};
    struct subscriber *s = &lapse_subscribers.one[h.index];
    int live = 0;
    pid_t pid;

    lapse_watch(h, unit_at(0), 1);
    lapse_publish(unit_at(0), 1);
    lock_take(&s->lock);
    poll_take(s);
    lapse_publish(unit_at(1), 1);
    pid = forked();
    if (!pid) {
        IN_CHILD(s->first && s->filter.root);
        IN_CHILD(lapse_pending(h));
        lock_drop(&s->lock);
        IN_CHILD(lapse_watch(h, unit_at(0), 1) == -ESTALE);
        while (!lapse_subscribe(&how, &next))
            live++;
        IN_CHILD(live == SUBSCRIBERS_MAX);
        IN_CHILD(!s->first && !s->filter.root);
        lapse_publish(unit_at(0), 1);
        IN_CHILD(!lapse_pending(next));
        _exit(0);
    }
    lock_drop(&s->lock);
    expect_child(pid);
}

/* Else a wait of the child is not seen, and not ended. */
Test(fork, a_wait_goes_on_in_the_child)
{
    lapse_handle h = unit_poller(LAPSE_ALL);
    struct lock *l = &lapse_subscribers.one[h.index].lock;
    pid_t pid;

    lock_waits++; /* as in lock_wait(), and a handler came */
    l->waiters++;
    pid = forked();
    l->waiters--;
    lock_waits--;
    if (!pid)
        _exit(l->waiters ? 1 : 0);
    expect_child(pid);
    cr_assert_eq(l->waiters, 0);
}

/* Each has what another one wants. */
Test(fork, hangs_not_where_owners_fork, .timeout = 20)
{
    lapse_handle first[2], second[2];
    struct lapse_event e[2];
    pthread_t t[2];

    first[0] = second[1] = unit_poller(LAPSE_ALL | LAPSE_FORK_KEEP);
    second[0] = first[1] = unit_poller(LAPSE_ALL | LAPSE_FORK_KEEP);
    pthread_barrier_init(&all_ready, NULL, 3);
    for (int i = 0; i < 10; i++) {
        pid_t pid;

        pthread_create(&t[0], NULL, fork_as_owner, first);
        pthread_create(&t[1], NULL, fork_as_owner, second);
        pthread_barrier_wait(&all_ready);
        pid = forked();
        if (!pid) {
            IN_CHILD(lapse_poll(first[0], e, 2) == 0);
            IN_CHILD(lapse_poll(second[0], e, 2) == 0);
            _exit(0);
        }
        expect_child(pid);
        pthread_join(t[0], NULL);
        pthread_join(t[1], NULL);
    }
}

/* A release of the forking thread itself goes on in the child. */
Test(fork, keeps_its_own_open)
{
    lapse_handle h = unit_poller(LAPSE_ALL | LAPSE_FORK_KEEP);
    struct lapse_event e[2];
    lapse_release r;
    pid_t pid;

    lapse_publish_begin(unit_at(0), 1, &r);
    pid = forked();
    if (!pid) {
        IN_CHILD(lapse_poll(h, e, 2) == 1);
        IN_CHILD(e[0].flags == LAPSE_EVENT_OPEN);
        IN_CHILD(lapse_publish_end(&r) == 0);
        IN_CHILD(idle_after_one(h, e));
        IN_CHILD(e[0].flags == 0);
        _exit(0);
    }
    expect_child(pid);
    lapse_publish_end(&r);
    cr_assert(idle_after_one(h, e));
}

static _Atomic int calls;

static void count(const struct lapse_event *event, void *arg)
{
    (void)arg;
    if (!(event->flags & LAPSE_EVENT_OPEN))
        calls++;
}

Test(fork, revives_the_drainer_when_the_library_is_used)
{
    lapse_handle h = unit_subscribe(LAPSE_CALLBACK,
                                    LAPSE_ALL | LAPSE_FORK_KEEP, count, NULL);
    pid_t pid;

    lapse_publish(unit_at(0), 1);
    cr_assert_eq(unit_await(&calls, 1), 1);
    pid = forked();
    if (!pid) {
        calls = 0;
        lapse_watch(h, unit_at(0), 1);
        lapse_publish(unit_at(0), 1);
        IN_CHILD(unit_await(&calls, 1) == 1);
        lapse_publish(unit_at(0), 1);
        IN_CHILD(lapse_sync(h) == 0);
        IN_CHILD(calls == 2);
        IN_CHILD(lapse_unsubscribe(h) == 0);
        _exit(0);
    }
    expect_child(pid);
    lapse_publish(unit_at(0), 1);
    cr_assert_eq(unit_await(&calls, 2), 2, "the parent's lives on");
}

static sem_t in_callback, end_callback;
static pid_t from_handler = -1;

static void stay(const struct lapse_event *event, void *arg)
{
    (void)arg;
    if (event->flags & LAPSE_EVENT_OPEN)
        return;
    sem_post(&in_callback);
    while (sem_wait(&end_callback))
        ;
}

static void fork_in_handler(int number)
{
    from_handler = forked();
    if (from_handler)
        sem_post(&end_callback);
    else
        sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
}

/* For a callback of a thread that the child does not have. */
Test(fork, waits_for_no_callback_of_another_thread, .timeout = 20)
{
    struct sigaction act = {.sa_handler = fork_in_handler,
                            .sa_flags = SA_RESTART};
    lapse_handle h = unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, stay, NULL);
    int err;

    if (THREAD_SANITIZER)
        cr_skip("it keeps a signal back while a thread waits in our futex()");
    sem_init(&in_callback, 0, 0);
    sem_init(&end_callback, 0, 0);
    lapse_publish(unit_at(0), 1);
    sem_wait(&in_callback);
    sigaction(SIGALRM, &act, NULL);
    ualarm(50000, 0);
    err = lapse_unsubscribe(h);
    if (!from_handler)
        _exit(-err);
    cr_assert_eq(err, 0);
    expect_child(from_handler);
}

Test(fork, a_dropped_callback_makes_no_drainer)
{
    lapse_handle h = unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, count, NULL);
    pid_t pid;

    /* The drainer is up and asleep: AddressSanitizer holds a lock while a
     * thread starts, and the child could make none. Without a sanitizer,
     * api_fork forks just then. */
    lapse_publish(unit_at(0), 1);
    cr_assert_eq(unit_await(&calls, 1), 1);
    unit_sleep_ms(20);
    pid = forked();
    if (!pid) {
        calls = 0;
        lapse_publish(unit_at(0), 1);
        IN_CHILD(lapse_drain() == 0);
        IN_CHILD(lapse_sync(h) == -ESTALE);
        unit_sleep_ms(5);
        IN_CHILD(calls == 0);
        h = unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, count, NULL);
        lapse_publish(unit_at(0), 1);
        IN_CHILD(unit_await(&calls, 1) == 1); /* made for the new one */
        _exit(0);
    }
    expect_child(pid);
}

Test(fork, the_child_has_a_descriptor_of_its_own)
{
    lapse_handle h = unit_poller(LAPSE_ALL | LAPSE_FORK_KEEP);
    struct pollfd p = {.fd = lapse_fd(h), .events = POLLIN};
    pid_t pid = forked();

    if (!pid) {
        p.fd = lapse_fd(h);
        IN_CHILD(p.fd >= 0);
        lapse_publish(unit_at(0), 1);
        IN_CHILD(poll(&p, 1, 0) == 1 && p.revents == POLLIN);
        _exit(0);
    }
    expect_child(pid);
    cr_assert_eq(poll(&p, 1, 0), 0, "the child woke the parent");
}

Test(fork, the_child_counts_from_0)
{
    struct lapse_stats s = {.size = sizeof(s)};
    lapse_handle h = unit_poller(LAPSE_ALL | LAPSE_FORK_KEEP);
    struct lapse_event e[2];
    pid_t pid;

    lapse_publish(unit_at(0), 1);
    lapse_poll(h, e, 2);
    pid = forked();
    if (!pid) {
        IN_CHILD(lapse_stats(&s) == 0);
        IN_CHILD(!s.published && !s.delivered);
        IN_CHILD(!s.path[LAPSE_PATH_PUBLISH].calls);
        IN_CHILD(s.subscribers == 1);
        _exit(0);
    }
    expect_child(pid);
    lapse_stats(&s);
    cr_assert_eq(s.published, 1);
}
