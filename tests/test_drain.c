/* SPDX-License-Identifier: BSD-3-Clause */
/* Callbacks: on the drainer or on who waits, holding nothing. */
#include "shim/drain.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/release.h"
#include "shim/wake.h"
#include "tests/unit.h"

TestSuite(drain, .init = unit_start);

static _Atomic int calls, opens, failures;
static pthread_t tester;

/* The drainer may be so quick that it finds even lapse_publish() open, and
 * tells of it twice; closed it is told of once. */
static void count(const struct lapse_event *event, void *arg)
{
    if (arg && arg != &calls)
        failures++;
    if (event->flags & LAPSE_EVENT_OPEN)
        opens++;
    else
        calls++;
}

Test(drain, calls_back_unasked)
{
    unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, count, &calls);
    for (int i = 1; i <= 20; i++) {
        lapse_publish(unit_at(0), 1);
        cr_assert_eq(unit_await(&calls, i), i, "the drainer was not woken");
    }
    cr_assert_eq(failures, 0);
}

Test(drain, sync_returns_when_all_was_told)
{
    lapse_handle h = unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, count, NULL);

    for (int i = 1; i <= 200; i++) {
        lapse_publish(unit_at(0), 1);
        cr_assert_eq(lapse_sync(h), 0);
        cr_assert_eq(calls, i);
    }
    cr_assert(!lapse_pending(h));
}

Test(drain, drains_everybody)
{
    unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, count, NULL);
    unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, count, NULL);
    unit_poller(LAPSE_ALL); /* nobody can do that for it */
    for (int i = 1; i <= 50; i++) {
        lapse_publish(unit_at(0), 1);
        cr_assert_eq(lapse_drain(), 0);
        cr_assert_eq(calls, 2 * i);
    }
}

static void in_order(const struct lapse_event *event, void *last)
{
    uint64_t *seq = last;

    if (event->seq > *seq + 1)
        failures++;
    if (event->seq == *seq + 1)
        ++*seq; /* else told OPEN before */
}

/* More than one batch; the pool takes 64. */
Test(drain, calls_back_in_order)
{
    uint64_t last = 0;
    lapse_handle h =
        unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, in_order, &last);

    for (int i = 0; i < 20; i++) {
        for (int k = 0; k < 60; k++)
            lapse_publish(unit_at(k), 1);
        lapse_sync(h);
    }
    cr_assert_eq(last, 1200);
    cr_assert_eq(failures, 0);
}

Test(drain, tells_an_open_one_once_and_once_more)
{
    lapse_handle h = unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, count, NULL);
    struct unit_opener o;

    unit_open(&o, unit_at(0), 1);
    cr_assert_eq(unit_await(&opens, 1), 1);
    unit_sleep_ms(20); /* many of the drainer's looks */
    cr_assert_eq(opens, 1);
    cr_assert_eq(calls, 0);
    cr_assert(lapse_pending(h));
    unit_close(&o);
    cr_assert_eq(unit_await(&calls, 1), 1);
    cr_assert_eq(opens, 1);
    cr_assert_eq(lapse_sync(h), 0);
    cr_assert_eq(calls, 1);
    cr_assert(!lapse_pending(h));
}

Test(drain, sync_does_not_wait_for_an_open_one)
{
    lapse_handle h = unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, count, NULL);
    struct unit_opener o;

    unit_open(&o, unit_at(0), 1);
    cr_assert_eq(lapse_sync(h), 0);
    cr_assert_geq(opens, 1);
    cr_assert_eq(calls, 0);
    unit_close(&o);
    cr_assert_eq(lapse_sync(h), 0);
    cr_assert_eq(calls, 1, "told closed, too");
}

static void call_into(const struct lapse_event *event, void *arg)
{
    lapse_handle *h = arg;

    (void)event;
    if (lapse_sync(*h) != -EDEADLK || lapse_drain() != -EDEADLK)
        failures++;
    calls++;
}

Test(drain, refuses_to_wait_inside_a_callback)
{
    static lapse_handle h;

    h = unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, call_into, &h);
    lapse_publish(unit_at(0), 1);
    while (!calls)
        unit_sleep_ms(1);
    lapse_publish(unit_at(0), 1);
    cr_assert_eq(lapse_sync(h), 0);
    cr_assert_geq(calls, 2);
    cr_assert_eq(failures, 0);
}

static void busy(const struct lapse_event *event, void *arg)
{
    lapse_handle *own = arg, other;
    struct lapse_subscription how = {.size = sizeof(how)};
    void *map = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *volatile p = malloc(1 << 20);

    (void)event;
    free(p);
    if (munmap(map, 1 << 16) || lapse_subscribe(&how, &other) ||
        lapse_watch(other, map, 1 << 16) ||
        lapse_publish(map, 1 << 16) || /* of its own: queued, not nested */
        !lapse_pending(other) || lapse_unsubscribe(other) ||
        lapse_watch(*own, map, 1) || lapse_unwatch(*own, map, 1) ||
        lapse_unsubscribe(*own) || lapse_unsubscribe(*own) != -ESTALE)
        failures++;
    calls++;
}

static void busy_with(lapse_handle *h, bool sync)
{
    *h = unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, busy, h);
    calls = 0;
    lapse_publish(unit_at(0), 1);
    lapse_publish(unit_at(0), 1); /* it is gone by then */
    if (sync)
        lapse_sync(*h);
    cr_assert_eq(unit_await(&calls, 1), 1);
    while (lapse_unsubscribe(*h) != -ESTALE)
        ;
    unit_sleep_ms(5);
    cr_assert_eq(calls, 1, "called back after its end");
    cr_assert_eq(failures, 0);
}

/* The first publish may be told before the second one: both are fine. */
Test(drain, a_callback_may_do_anything)
{
    static lapse_handle h;

    for (int i = 0; i < 10; i++)
        busy_with(&h, i & 1);
}

static sem_t entered, leave;
static _Atomic int left, unsubscribed;

static void slow(const struct lapse_event *event, void *arg)
{
    (void)event;
    (void)arg;
    calls++;
    sem_post(&entered);
    while (sem_wait(&leave))
        ;
    unit_sleep_ms(10);
    left = 1;
}

static void *unsubscribe(void *h)
{
    if (lapse_unsubscribe(*(lapse_handle *)h) || !left)
        failures++;
    unsubscribed = 1;
    return NULL;
}

Test(drain, unsubscribe_waits_for_a_callback)
{
    lapse_handle h = unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, slow, NULL);
    pthread_t t;

    sem_init(&entered, 0, 0);
    sem_init(&leave, 0, 0);
    lapse_publish(unit_at(0), 1);
    lapse_publish(unit_at(1), 1);
    sem_wait(&entered);
    pthread_create(&t, NULL, unsubscribe, &h);
    /* stale from the first moment on; not by lapse_sync, which would wait */
    while (lapse_fd(h) != -ESTALE)
        ;
    unit_sleep_ms(20);
    cr_assert_eq(unsubscribed, 0, "a callback still ran");
    sem_post(&leave);
    pthread_join(t, NULL);
    cr_assert_eq(failures, 0);
    cr_assert_eq(calls, 1, "called back after its end");
}

static void note_other(const struct lapse_event *event, void *others)
{
    (void)event;
    ++*(_Atomic int *)others;
}

/* Slow only where lapse_sync() calls it. */
static void slow_in_sync(const struct lapse_event *event, void *syncing)
{
    if (pthread_equal(pthread_self(), *(pthread_t *)syncing) && !left)
        slow(event, NULL);
    calls++;
}

static void *sync_until_entered(void *h)
{
    while (!left) {
        lapse_publish(unit_at(0), 1);
        if (lapse_sync(*(lapse_handle *)h))
            failures++;
    }
    return NULL;
}

Test(drain, a_slow_callback_holds_up_no_other)
{
    static _Atomic int others;
    static pthread_t syncing;
    lapse_handle h =
        unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, slow_in_sync, &syncing);
    int before;

    unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, note_other, &others);
    sem_init(&entered, 0, 0);
    sem_init(&leave, 0, 0);
    pthread_create(&syncing, NULL, sync_until_entered, &h);
    sem_wait(&entered);
    for (int i = 0; i < 20; i++) {
        before = others;
        lapse_publish(unit_at(1), 1);
        cr_assert_geq(unit_await(&others, before + 1), before + 1, "held up");
    }
    before = calls;
    sem_post(&leave);
    pthread_join(syncing, NULL);
    cr_assert_geq(unit_await(&calls, before + 20), before + 20,
                  "what came meanwhile");
    cr_assert_eq(failures, 0);
}

static void note_closed(const struct lapse_event *event, void *closed)
{
    *(_Atomic int *)closed += !(event->flags & LAPSE_EVENT_OPEN);
}

/* It came when the drainer had looked there, and was busy elsewhere. */
Test(drain, what_sync_told_open_is_told_closed)
{
    static _Atomic int closed;
    lapse_handle h =
        unit_subscribe(LAPSE_CALLBACK, 0, note_closed, &closed);
    lapse_handle next = unit_subscribe(LAPSE_CALLBACK, 0, slow, NULL);
    struct unit_opener o;

    sem_init(&entered, 0, 0);
    sem_init(&leave, 0, 0);
    lapse_watch(h, unit_at(0), 1);
    lapse_watch(next, unit_at(9), 1);
    lapse_publish(unit_at(9), 1);
    sem_wait(&entered);
    unit_open(&o, unit_at(0), 1);
    cr_assert_eq(lapse_sync(h), 0);
    cr_assert_eq(closed, 0);
    sem_post(&leave);
    sem_post(&leave); /* if it was told OPEN first */
    unit_sleep_ms(50);
    unit_close(&o);
    cr_assert_eq(unit_await(&closed, 1), 1, "the drainer slept");
}

static double cpu_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Who unsubscribes is stopped in the middle, see retire(). */
Test(drain, sleeps_while_somebody_unsubscribes)
{
    lapse_handle h = unit_subscribe(LAPSE_CALLBACK, 0, count, NULL);
    struct subscriber *s = &lapse_subscribers.one[h.index];
    double before;

    lock_take(&s->lock);
    atomic_fetch_and(&lapse_live, ~((uint64_t)1 << h.index));
    wake_drainer();
    unit_sleep_ms(10);
    before = cpu_ms();
    unit_sleep_ms(100);
    cr_expect_lt(cpu_ms() - before, 10, "the drainer spins");
    atomic_fetch_or(&lapse_live, (uint64_t)1 << h.index);
    lock_drop(&s->lock);
    lapse_unsubscribe(h);
}

static void note_thread(const struct lapse_event *event, void *arg)
{
    sigset_t blocked;

    (void)event;
    (void)arg;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    if (pthread_equal(pthread_self(), tester) ||
        !sigismember(&blocked, SIGINT) || !sigismember(&blocked, SIGSEGV))
        failures++;
    calls++;
}

Test(drain, the_drainer_takes_no_signals)
{
    sigset_t before, after;

    tester = pthread_self();
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, note_thread, NULL);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    cr_assert_eq(sigismember(&after, SIGINT), sigismember(&before, SIGINT));
    lapse_publish(unit_at(0), 1);
    while (!calls)
        unit_sleep_ms(1);
    cr_assert_eq(failures, 0);
}

static int threads(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static int threads_within(int most)
{
    for (int i = 0; i < 200 && threads() > most; i++)
        unit_sleep_ms(1);
    return threads();
}

/* It is there while anybody subscribed with a callback, and no longer. */
Test(drain, the_drainer_leaves)
{
    int before = threads();
    lapse_handle h;

    for (int i = 0; i < 2; i++) {
        h = unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, count, NULL);
        lapse_publish(unit_at(0), 1);
        cr_assert_eq(unit_await(&calls, i + 1), i + 1);
        cr_assert_eq(threads(), before + 1);
        lapse_unsubscribe(h);
        cr_expect_eq(threads_within(before), before, "round %d: lingers", i);
    }
}

static _Atomic int made, made_locked, refused;

int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                   void *(*start)(void *), void *arg)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
                       void *);

    if (!real)
        real = (typeof(real))dlsym(RTLD_NEXT, "pthread_create");
    made++;
    made_locked += lock_mine(&lapse_subscribers.registry);
    if (refused) {
        drainer_revive(); /* as another thread, meanwhile */
        return EAGAIN;
    }
    return real(thread, attr, start, arg);
}

/* It allocates, and a fork that waits for ours may hold an allocator's lock. */
Test(drain, the_drainer_is_made_with_no_lock_held)
{
    int before = made;

    unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, count, NULL);
    cr_assert_eq(made, before + 1);
    cr_assert_eq(made_locked, 0);
}

/* In a forked child, by the next call of the API. */
Test(drain, the_drainer_is_tried_again)
{
    lapse_handle h = unit_subscribe(LAPSE_CALLBACK,
                                    LAPSE_ALL | LAPSE_FORK_KEEP, count, NULL);
    pid_t pid;
    int status;

    if (ADDRESS_SANITIZER)
        cr_skip("it holds a lock of its own while a thread starts, and forks");
    pid = fork();
    if (!pid) {
        refused = 1;
        lapse_watch(h, unit_at(0), 1);
        refused = 0;
        lapse_watch(h, unit_at(0), 1);
        lapse_publish(unit_at(0), 1);
        _exit(unit_await(&calls, 1) != 1);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
}

static void only_overflow(const struct lapse_event *event, void *arg)
{
    (void)arg;
    if (event->flags & LAPSE_EVENT_OVERFLOW)
        opens++;
    else
        failures++;
}

Test(drain, tells_overflow)
{
    lapse_handle h;

    /* keep the drainer away meanwhile */
    sem_init(&entered, 0, 0);
    sem_init(&leave, 0, 0);
    h = unit_subscribe(LAPSE_CALLBACK, 0, slow, NULL);
    lapse_watch(h, unit_at(9999), 1);
    lapse_publish(unit_at(9999), 1);
    sem_wait(&entered);
    unit_subscribe(LAPSE_CALLBACK, LAPSE_ALL, only_overflow, NULL);
    for (size_t i = 0; i < UNIT_RECORDS + 1; i++)
        lapse_publish(unit_at(i), 1);
    sem_post(&leave);
    sem_post(&leave); /* if it was told OPEN first */
    cr_assert_eq(lapse_drain(), 0);
    cr_assert_eq(opens, 1);
    cr_assert_eq(failures, 0);
}
