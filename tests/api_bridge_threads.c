/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bridges/jemalloc.c with threads, each with a cache of its own that never hits
 * what is stale, while somebody gives back what is kept; and with forks.
 */
#include <pthread.h>

#include "bridge.h"

enum { THREADS = 4, ENTRIES = 8 };
static atomic_bool stop;
static atomic_long rounds, hits, stale, spoilt;

struct entry {
    char *page;
    size_t len;
    uint64_t first, last;
};

static void drop(lapse_handle s, struct entry *e)
{
    if (e->page)
        lapse_unwatch(s, e->page, e->len);
    e->page = NULL;
}

static void drain(lapse_handle s, struct entry *cache)
{
    struct lapse_event e[16];
    int n;

    while (lapse_pending(s) && (n = lapse_poll(s, e, 16)) > 0)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < ENTRIES; j++)
                if (cache[j].page &&
                    event_overlaps(&e[i], cache[j].page, cache[j].len))
                    drop(s, &cache[j]);
}

static void lookup(lapse_handle s, struct entry *cache, char *p, size_t len,
                   uint64_t *seed)
{
    char *page = (char *)((uintptr_t)p & ~(PAGE - 1));
    struct entry *e;

    len = (size_t)(p + len - page);
    drain(s, cache);
    for (int i = 0; i < ENTRIES; i++)
        if (cache[i].page == page && cache[i].len == len) {
            atomic_fetch_add(&hits, 1);
            if (pfn(page) != cache[i].first ||
                pfn(page + len - 1) != cache[i].last)
                atomic_fetch_add(&stale, 1);
            return;
        }
    e = &cache[random_next(seed) % ENTRIES];
    drop(s, e);
    if (lapse_watch(s, page, len) == 0)
        *e = (struct entry){page, len, pfn(page), pfn(page + len - 1)};
}

static void *worker(void *arg)
{
    uint64_t seed = (uintptr_t)arg + 1;
    lapse_handle s = subscribe(LAPSE_POLL, 0, NULL, NULL);
    struct entry cache[ENTRIES] = {0};

    while (!stop) {
        size_t len = (64 + random_next(&seed) % 5 * 200) * 1024;
        char *p = malloc(len), c = (char)random_next(&seed);

        memset(p, c, len);
        lookup(s, cache, p, len, &seed);
        if (!all(p, len, c))
            atomic_fetch_add(&spoilt, 1);
        free(p);
        p = calloc(1, len);
        if (!all(p, len, 0))
            atomic_fetch_add(&spoilt, 1);
        free(p);
        atomic_fetch_add(&rounds, 1);
    }
    for (int i = 0; i < ENTRIES; i++)
        drop(s, &cache[i]);
    lapse_unsubscribe(s);
    return NULL;
}

static int child_of_threads(void)
{
    for (int i = 0; i < 20; i++) {
        size_t len = (size_t)(i % 7 + 1) * 200 * 1024;
        char *p = calloc(1, len);

        if (!p || !all(p, len, 0))
            return 1;
        memset(p, i, len);
        lapse_jemalloc_purge();
        if (!all(p, len, (char)i))
            return 2;
        free(p);
    }
    return 0;
}

/* The copy on write after a fork is no release: stale only without. */
static void case_threads(bool forking)
{
    pthread_t t[THREADS];
    uint64_t end = now_ns() + 2000000000u;
    int children = 0, bad = 0;
    struct lapse_jemalloc_stats was = stats();

    stop = false;
    rounds = hits = stale = spoilt = 0;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&t[i], NULL, worker, (void *)(uintptr_t)i);
    while (now_ns() < end) {
        pid_t pid = forking ? fork() : -1;

        if (pid == 0)
            _exit(child_of_threads());
        if (pid > 0) {
            children++;
            bad += wait_for(pid, 10) != 0;
        }
        lapse_jemalloc_purge();
    }
    stop = true;
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    check(rounds > 0 && !spoilt, "threads: %ld rounds, %ld contents spoilt",
          rounds, spoilt);
    if (forking)
        check(!bad, "%d children forked meanwhile, %d bad", children, bad);
    else
        check(hits > 0 && !stale, "%ld hits, %ld stale, %zu purges refused",
              hits, stale, (size_t)(stats().refused - was.refused));
    lapse_jemalloc_purge();
    check(stats().kept_bytes == 0, "all unwatched: nothing is kept");
}

static void cases(void)
{
    case_threads(false);
    case_threads(true);
}

int main(int argc, char **argv)
{
    return with_jemalloc(argc, argv, cases);
}
