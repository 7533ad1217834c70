/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that are cancelled, at once, wherever they are in a release. POSIX
 * forbids it (munmap is not async-cancel-safe), so what is promised is little:
 * such a release stays open for ever, which is a false alarm at each poll; with
 * more of them than there are slots everything is OVERFLOW. But nothing is
 * forgotten, nothing hangs, and cleanup handlers run.
 * Usage: api_cancel [--stuck] [THREADS]   --stuck: some must be caught inside
 */
#include <pthread.h>

#include "api.h"

#define EVENTS 64
#define ROUND 20 /* threads at a time */

static atomic_uint cleaned, ready;

static void clean(void *unused)
{
    (void)unused;
    atomic_fetch_add(&cleaned, 1);
}

static void *victim(void *page)
{
    pthread_cleanup_push(clean, NULL);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    atomic_fetch_add(&ready, 1);
    for (;;)
        madvise(page, PAGE, MADV_DONTNEED);
    pthread_cleanup_pop(1);
    return NULL;
}

static void *well_behaved(void *page)
{
    pthread_cleanup_push(clean, NULL);
    atomic_fetch_add(&ready, 1);
    for (;;) {
        munmap(fresh(PAGE), PAGE);
        free(malloc(300000));
        madvise(page, PAGE, MADV_DONTNEED);
        pthread_testcancel();
    }
    pthread_cleanup_pop(1);
    return NULL;
}

/* Returns how many ended as cancelled threads do. */
static unsigned cancel_round(void *(*body)(void *), unsigned n, char *page)
{
    pthread_t thread[ROUND];
    unsigned good = 0;
    void *result;

    atomic_store(&ready, 0);
    for (unsigned i = 0; i < n; i++)
        need(!pthread_create(&thread[i], NULL, body, page), "pthread_create");
    while (atomic_load(&ready) < n)
        sleep_us(100);
    for (unsigned i = 0; i < n; i++) {
        sleep_us(i * 7 % 50);
        pthread_cancel(thread[i]);
        good += !pthread_join(thread[i], &result) &&
                result == PTHREAD_CANCELED;
    }
    return good;
}

static unsigned cancel_all(void *(*body)(void *), unsigned n, char *page)
{
    unsigned good = 0;

    for (unsigned i = 0; i < n; i += ROUND)
        good += cancel_round(body, n - i < ROUND ? n - i : ROUND, page);
    return good;
}

/* One round of polling ends. Was p in it, and how many are open? */
static bool round_of(lapse_handle s, const char *p, unsigned *open)
{
    struct lapse_event event[EVENTS];
    bool hit = false;
    int n;

    *open = 0;
    do {
        n = lapse_poll(s, event, EVENTS);
        for (int i = 0; i < n; i++) {
            hit |= event_overlaps(&event[i], p, PAGE);
            *open += (event[i].flags & LAPSE_EVENT_OPEN) != 0;
        }
    } while (n == EVENTS);
    return hit;
}

static atomic_ulong calls;

static void count(const struct lapse_event *event, void *arg)
{
    (void)event;
    (void)arg;
    atomic_fetch_add(&calls, 1);
}

int main(int argc, char **argv)
{
    bool stuck = argc > 1 && !strcmp(argv[1], "--stuck");
    unsigned n = argc > 1 + stuck ? (unsigned)atoi(argv[1 + stuck]) : 200;
    char *page = fresh(PAGE), *p = fresh(PAGE);
    unsigned open = 0, good;
    unsigned long before;
    lapse_handle polled, called;
    pid_t pid;

    polled = subscribe(LAPSE_POLL, LAPSE_FORK_KEEP, NULL, NULL);
    called = subscribe(LAPSE_CALLBACK, 0, count, NULL);
    need(!lapse_watch(polled, page, PAGE), "watch");
    need(!lapse_watch(called, page, PAGE), "watch");

    if (!stuck) {
        good = cancel_all(well_behaved, n, page);
        check(good == n && atomic_load(&cleaned) == n,
              "deferred: %u of %u cancelled, %u cleaned up", good, n,
              atomic_load(&cleaned));
    }
    atomic_store(&cleaned, 0);
    good = cancel_all(victim, n, page);
    check(good == n && atomic_load(&cleaned) == n,
          "asynchronous: %u of %u cancelled, %u cleaned up", good, n,
          atomic_load(&cleaned));
    round_of(polled, page, &open); /* what waited, too */
    round_of(polled, page, &open);
    printf("%u releases stay open for ever\n", open);
    if (stuck)
        check(open > 0 || lapse_pending(polled), "some were caught inside");

    need(!lapse_watch(polled, p, PAGE) && !lapse_watch(called, p, PAGE),
         "watch");
    before = atomic_load(&calls);
    munmap(p, PAGE);
    check(round_of(polled, p, &open), "who polls is told of the next one");
    check(!lapse_sync(called) && atomic_load(&calls) > before,
          "who is called back, too");
    pid = fork();
    if (pid == 0) {
        p = fresh(PAGE);
        lapse_watch(polled, p, PAGE);
        munmap(p, PAGE);
        _exit(!round_of(polled, p, &open));
    }
    check(wait_for(pid, 60) == 0, "a forked child, too");
    check(!lapse_unsubscribe(polled) && !lapse_unsubscribe(called),
          "both can leave");
    return api_end();
}
