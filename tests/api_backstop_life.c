/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LAPSE_BACKSTOP=uffd over time: locks that others hold (B1), fork, mappings
 * that must not become more, a program that closes what it did not open.
 * Usage: api_backstop_life [WATCHES]
 */
#include <pthread.h>

#include "tests/backstop.h"

/* B1: the callback wants a lock that the freeing thread holds; the callback
 * frees another watched block. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int called;
static _Atomic(char *) other_block;

static void on_release(const struct lapse_event *e, void *arg)
{
    char *block = atomic_exchange(&other_block, NULL);

    (void)e;
    (void)arg;
    if (block)
        sys(SYS_munmap, block, 64 * PAGE);
    pthread_mutex_lock(&mutex);
    atomic_fetch_add(&called, 1);
    pthread_mutex_unlock(&mutex);
}

static void test_b1(void)
{
    lapse_handle s = subscribe(LAPSE_CALLBACK, 0, on_release, NULL);
    char *p = fresh(256 * PAGE), *q = fresh(64 * PAGE);
    char *block = malloc(1 << 20);
    int want = SANITIZED ? 2 : 3; /* a sanitizer's free keeps the block */

    lapse_watch(s, p, 256 * PAGE);
    lapse_watch(s, q, 64 * PAGE);
    lapse_watch(s, block, 1 << 20);
    atomic_store(&other_block, q);
    pthread_mutex_lock(&mutex);
    sys(SYS_munmap, p, 256 * PAGE);
    free(block);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 2000 && atomic_load(&called) < want; i++)
        sleep_us(1000);
    check(atomic_load(&called) >= want, "B1: no hang, %d callbacks",
          atomic_load(&called));
    lapse_sync(s);
    lapse_unsubscribe(s);
}

static int mappings(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    int c, n = 0;

    while (f && (c = getc(f)) != EOF)
        n += c == '\n';
    if (f)
        fclose(f);
    return n;
}

static void test_no_leak(long count)
{
    enum { PAGES = 512 };
    char *p = fresh(PAGES * PAGE), *untouched;
    int before = mappings();
    uint64_t random = 1, end = now_ns() + 20000000000u;
    long i;

    for (i = 0; i < count && now_ns() < end; i++) {
        char *at = p + random_next(&random) % PAGES * PAGE;

        lapse_watch(sub, at, PAGE);
        lapse_unwatch(sub, at, PAGE);
    }
    check(mappings() <= before, "%ld watch and unwatch: %d mappings more", i,
          mappings() - before);
    /* watched by hundreds, first touched while it is, and let go */
    untouched = mmap(NULL, PAGES * PAGE, RW, ANON, -1, 0);
    for (i = 0; i < PAGES; i += 2)
        lapse_watch(sub, untouched + i * PAGE, PAGE);
    check(mappings() <= before + PAGES + 2, "%d watches: %d mappings more",
          PAGES / 2, mappings() - before);
    memset(untouched, 1, PAGES * PAGE);
    for (i = 0; i < PAGES; i += 2)
        lapse_unwatch(sub, untouched + i * PAGE, PAGE);
    munmap(untouched, PAGES * PAGE);
    /* a sanitizer maps for itself */
    check(mappings() <= before + (SANITIZED ? 64 : 2), "and gone: %d more",
          mappings() - before);
    munmap(p, PAGES * PAGE);
}

/*
 * R1 of hooks/backstop.h: two subscribers watch and unwatch, two threads
 * release by sites, all in the same pages. When they rest, an inline madvise
 * makes an event just where a page is watched.
 */
#define RACED 64

static char *raced;
static unsigned char watches[2][RACED];
static lapse_handle racer[2];
static atomic_bool rest;

static void *watch_some(void *which)
{
    int me = which != NULL;
    uint64_t random = now_ns() | 1;

    while (!atomic_load(&rest)) {
        unsigned i = random_next(&random) % RACED;
        unsigned n = 1 + random_next(&random) % (RACED - i);

        for (unsigned k = 0; k < n; k++)
            if (watches[me][i + k])
                n = k ? k : (lapse_unwatch(racer[me], raced + i * PAGE, PAGE),
                             watches[me][i] = 0);
        if (!n || lapse_watch(racer[me], raced + i * PAGE, n * PAGE))
            continue;
        memset(&watches[me][i], 1, n);
    }
    return NULL;
}

static void *release_some(void *unused)
{
    uint64_t random = now_ns() | 1;

    while (!atomic_load(&rest)) {
        unsigned i = random_next(&random) % RACED;
        unsigned n = 1 + random_next(&random) % (RACED - i);

        if (random_next(&random) % 2)
            madvise(raced + i * PAGE, n * PAGE, MADV_DONTNEED);
        else
            mmap(raced + i * PAGE, n * PAGE, RW, ANON | MAP_FIXED, -1, 0);
    }
    return unused;
}

/* lapse_poll waits for what the reader has in its hands; where that takes long,
 * on a busy machine, it says OVERFLOW instead. */
static uint64_t backstopped(void)
{
    struct lapse_stats s = {.size = sizeof s};
    struct lapse_event e[16];
    bool overflow = true;

    for (int tries = 0; overflow && tries < 1000; tries++) {
        int n = lapse_poll(racer[0], e, 16);

        overflow = false;
        for (int i = 0; i < n; i++)
            overflow |= e[i].flags & LAPSE_EVENT_OVERFLOW;
        if (overflow)
            sleep_us(1000);
    }
    lapse_stats(&s);
    return s.path[LAPSE_PATH_BACKSTOP].releases;
}

static void test_races(void)
{
    unsigned missed = 0, extra = 0, watched_pages = 0;
    pthread_t thread[4];

    raced = fresh((RACED + 1) * PAGE);
    for (int i = 0; i < 2; i++)
        racer[i] = subscribe(LAPSE_POLL, 0, NULL, NULL);
    for (int round = 0; round < 40; round++) {
        atomic_store(&rest, false);
        for (int i = 0; i < 4; i++)
            pthread_create(&thread[i], NULL, i < 2 ? watch_some : release_some,
                           i % 2 ? raced : NULL);
        sleep_us(20000);
        atomic_store(&rest, true);
        for (int i = 0; i < 4; i++)
            pthread_join(thread[i], NULL);
        /* the next unwatch undoes what was registered too much */
        lapse_watch(racer[0], raced + RACED * PAGE, PAGE);
        lapse_unwatch(racer[0], raced + RACED * PAGE, PAGE);
        for (unsigned i = 0; i < RACED; i++) {
            bool is = watches[0][i] || watches[1][i];
            uint64_t before = backstopped();

            sys(SYS_madvise, raced + i * PAGE, PAGE, MADV_DONTNEED);
            before = backstopped() - before;
            watched_pages += is;
            missed += is && !before;
            extra += !is && before;
        }
    }
    check(!missed && !extra, "races: %u of %u watched missed, %u others told",
          missed, watched_pages, extra);
    check(watched_pages > 100 && watched_pages < 40 * RACED, "both kinds");
    for (int i = 0; i < 2; i++)
        lapse_unsubscribe(racer[i]);
    munmap(raced, (RACED + 1) * PAGE);
}

/* The program closes what it did not open. */
static void test_closed(void)
{
    char *p = watched(8);
    bool overflow = false;

    close_range(3, ~0u, 0);
    sys(SYS_munmap, p, PAGE);
    for (int i = 0; i < 1000 && !overflow; i++) {
        drain();
        for (int k = 0; k < event_count; k++)
            overflow |= events[k].flags & LAPSE_EVENT_OVERFLOW;
        sleep_us(1000);
    }
    check(overflow, "closed by the program: OVERFLOW");
    drain_all();
    sys(SYS_munmap, p + PAGE, PAGE);
    told("closed, and made anew", p + PAGE, PAGE, LAPSE_REASON_MUNMAP);
    forget(p, 8);
}

static void in_child(char *p)
{
    bool pending = lapse_pending(sub);
    bool overflow = false;

    sys(SYS_munmap, p, PAGE); /* nobody sees it, so everything is told */
    drain();
    for (int k = 0; k < event_count; k++)
        overflow |= events[k].flags & LAPSE_EVENT_OVERFLOW;
    check(pending && overflow, "child: OVERFLOW");
    drain_all();
    sys(SYS_munmap, p + PAGE, PAGE);
    told("child: munmap", p + PAGE, PAGE, LAPSE_REASON_MUNMAP);
    fflush(stdout);
    _exit(api_end());
}

static void test_fork(void)
{
    char *p = watched(4);
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (!pid)
        in_child(p);
    check(wait_for(pid, 10) == 0, "child of fork");
    drain();
    check(!event_count, "parent: nothing of the child's");
    sys(SYS_munmap, p, PAGE);
    told("parent: munmap", p, PAGE, LAPSE_REASON_MUNMAP);
    forget(p, 4);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!covered()) {
        printf("the backstop is off, or refused by the kernel\n");
        return 77;
    }
    sub = subscribe(LAPSE_POLL, LAPSE_FORK_KEEP, NULL, NULL);
    test_b1();
    test_fork();
    test_no_leak(argc > 1 ? atol(argv[1]) : 100000);
    test_races();
    test_closed();
    return api_end();
}
