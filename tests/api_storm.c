/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 64 threads subscribe, watch, release, poll, unwatch and unsubscribe at
 * random; callbacks allocate, free, unmap, subscribe, and unsubscribe
 * themselves. Failure is: a hang, a crash, a release that its own thread's
 * subscription is not told of, a callback after its unsubscription, or an
 * error that lapse.h does not promise.
 * Usage: api_storm [SECONDS [SEED]]
 */
#include <pthread.h>
#include <sched.h>

#include "api.h"

#define THREADS 64
#define SHARED 64 /* pages that any thread watches and releases */
#define BATCH 8

static char *shared;
static atomic_bool stop;
static atomic_ulong releases, callbacks, subscribed, refused, overflows;
static uint64_t seed;

/* What a callback subscription hangs on; freed when nothing may use it. */
struct listener {
    lapse_handle handle;
    atomic_int state;
    _Atomic uint64_t random;
};
/* LEAVING: somebody is in its lapse_unsubscribe; LEFT: that was itself. */
enum { STARTING, RUNNING, LEAVING, LEFT, GONE };

/* Those that left by themselves: their callback may just be returning. */
static struct listener *volatile graveyard[100000];
static atomic_uint graves;

/* Errors that may be: no room, or no thread to be had. */
static bool may_fail(int err)
{
    if (err == -ENOSPC || err == -ENOMEM || err == -EAGAIN) {
        atomic_fetch_add_explicit(&refused, 1, memory_order_relaxed);
        return true;
    }
    return false;
}

static void release_something(uint64_t random)
{
    char *p = fresh(2 * PAGE), *q = malloc(random % 600000 + 1);

    q[0] = 1;
    KEEP(q);
    free(q);
    munmap(p, 2 * PAGE);
    madvise(shared + random % SHARED * PAGE, PAGE, MADV_DONTNEED);
}

static void on_nothing(const struct lapse_event *e, void *arg)
{
    (void)e;
    (void)arg;
}

static void on_event(const struct lapse_event *e, void *arg)
{
    struct listener *l = arg;
    int state = atomic_load(&l->state);
    uint64_t random = atomic_fetch_add_explicit(&l->random, 0x9e3779b97f4a7c15,
                                                memory_order_relaxed) | 1;
    lapse_handle other;
    struct lapse_subscription how = {.size = sizeof how,
                                     .delivery = LAPSE_CALLBACK,
                                     .flags = LAPSE_ALL,
                                     .callback = on_nothing};

    (void)e;
    atomic_fetch_add_explicit(&callbacks, 1, memory_order_relaxed);
    if (state >= LEFT)
        check(false, "a callback after its unsubscription");
    switch (random_next(&random) % 64) {
    case 0:
        release_something(random);
        break;
    case 1:
        if (lapse_subscribe(&how, &other) == 0 &&
            lapse_unsubscribe(other) != 0)
            check(false, "unsubscribe of another, in a callback");
        break;
    case 2:
        state = RUNNING;
        if (!atomic_compare_exchange_strong(&l->state, &state, LEAVING))
            break;
        if (lapse_unsubscribe(l->handle) != 0)
            check(false, "unsubscribe of itself, in a callback");
        atomic_store(&l->state, LEFT);
        break;
    case 3:
        sched_yield();
        break;
    }
}

static void listen_a_while(uint64_t *random)
{
    struct listener *l = calloc(1, sizeof *l);
    struct lapse_subscription how = {.size = sizeof how,
                                     .delivery = LAPSE_CALLBACK,
                                     .callback = on_event,
                                     .arg = l};
    int err, state = RUNNING;

    if (random_next(random) % 2)
        how.flags = LAPSE_ALL;
    l->random = random_next(random);
    err = lapse_subscribe(&how, &l->handle);
    if (err) {
        if (!may_fail(err))
            check(false, "lapse_subscribe: %d", err);
        free(l);
        return;
    }
    atomic_fetch_add_explicit(&subscribed, 1, memory_order_relaxed);
    atomic_store(&l->state, RUNNING);
    err = lapse_watch(l->handle, shared, SHARED / 2 * PAGE);
    if (err && err != -ESTALE) /* it may have left by itself */
        check(false, "lapse_watch: %d", err);
    release_something(random_next(random));
    sched_yield();
    if (atomic_compare_exchange_strong(&l->state, &state, LEAVING)) {
        err = lapse_unsubscribe(l->handle);
        if (err)
            check(false, "lapse_unsubscribe: %d", err);
        atomic_store(&l->state, GONE);
        free(l); /* whoever calls it now is caught by AddressSanitizer */
    } else {
        unsigned i = atomic_fetch_add(&graves, 1);

        while (atomic_load(&l->state) != LEFT)
            sched_yield();
        err = lapse_unsubscribe(l->handle);
        if (err != -ESTALE)
            check(false, "unsubscribe of one that left: %d", err);
        if (i < sizeof graveyard / sizeof *graveyard)
            graveyard[i] = l;
    }
}

static bool told(lapse_handle s, const char *addr, size_t len)
{
    struct lapse_event ev[BATCH];
    bool hit = false;
    int n;

    do {
        n = lapse_poll(s, ev, BATCH);
        for (int i = 0; i < n; i++) {
            hit |= event_overlaps(&ev[i], addr, len);
            if (ev[i].flags & LAPSE_EVENT_OVERFLOW)
                atomic_fetch_add_explicit(&overflows, 1,
                                          memory_order_relaxed);
        }
        if (n < 0)
            check(false, "lapse_poll: %d", n);
    } while (n == BATCH);
    return hit;
}

/* Watches, releases and asks: the answer is certain. */
static void ask_a_while(uint64_t *random)
{
    struct lapse_subscription how = {.size = sizeof how,
                                     .delivery = LAPSE_POLL};
    lapse_handle s;
    int err = lapse_subscribe(&how, &s);

    if (err) {
        if (!may_fail(err))
            check(false, "lapse_subscribe: %d", err);
        return;
    }
    atomic_fetch_add_explicit(&subscribed, 1, memory_order_relaxed);
    if (random_next(random) % 2)
        lapse_watch(s, shared, SHARED * PAGE);
    for (int i = 0; i < 20; i++) {
        size_t pages = random_next(random) % 8 + 1;
        size_t at = random_next(random) % pages;
        bool unmap = random_next(random) % 2;
        char *p = fresh(pages * PAGE);

        if (lapse_watch(s, p, pages * PAGE) != 0)
            check(false, "lapse_watch");
        if (random_next(random) % 4 == 0)
            sched_yield();
        if (unmap)
            munmap(p + at * PAGE, PAGE);
        else
            madvise(p + at * PAGE, PAGE, MADV_DONTNEED);
        atomic_fetch_add_explicit(&releases, 1, memory_order_relaxed);
        if (!lapse_pending(s) || !told(s, p + at * PAGE, PAGE))
            check(false, "a release was forgotten");
        if (lapse_unwatch(s, p, pages * PAGE) != 0)
            check(false, "lapse_unwatch");
        /* What is left only: another thread may have got the rest. */
        if (at)
            munmap(p, at * PAGE);
        if (unmap && pages - at > 1)
            munmap(p + (at + 1) * PAGE, (pages - at - 1) * PAGE);
        else if (!unmap)
            munmap(p + at * PAGE, (pages - at) * PAGE);
    }
    err = lapse_unsubscribe(s);
    if (err || lapse_unsubscribe(s) != -ESTALE || !lapse_pending(s))
        check(false, "lapse_unsubscribe, then -ESTALE: %d", err);
}

static void *worker(void *arg)
{
    uint64_t random = seed * 1000003 + (uintptr_t)arg + 1;

    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        switch (random_next(&random) % 4) {
        case 0:
            listen_a_while(&random);
            break;
        case 1:
            release_something(random_next(&random));
            if (lapse_drain() != 0)
                check(false, "lapse_drain");
            break;
        default:
            ask_a_while(&random);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    double length = argc > 1 ? atof(argv[1]) : 3;
    pthread_t thread[THREADS];
    struct lapse_stats st = {.size = sizeof st};

    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : now_ns() % 1000000 + 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("seed %lu\n", (unsigned long)seed);
    alarm(60 + (unsigned)length); /* a hang is a failure */
    shared = fresh(SHARED * PAGE);
    for (int i = 0; i < THREADS; i++)
        need(pthread_create(&thread[i], NULL, worker,
                            (void *)(uintptr_t)i) == 0, "pthread_create");
    sleep_us((long)(length * 1e6));
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    lapse_drain();
    lapse_stats(&st);
    printf("subscribed %lu refused %lu releases %lu callbacks %lu "
           "overflows %lu\n", atomic_load(&subscribed), atomic_load(&refused),
           atomic_load(&releases), atomic_load(&callbacks),
           atomic_load(&overflows));
    check(atomic_load(&releases) > 100, "releases were made and told");
    check(atomic_load(&callbacks) > 10, "callbacks were called");
    check(st.subscribers == 0, "no subscriber is left");
    return api_end();
}
