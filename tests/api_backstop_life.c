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

    lapse_watch(s, p, 256 * PAGE);
    lapse_watch(s, q, 64 * PAGE);
    lapse_watch(s, block, 1 << 20);
    atomic_store(&other_block, q);
    pthread_mutex_lock(&mutex);
    sys(SYS_munmap, p, 256 * PAGE);
    free(block);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 2000 && atomic_load(&called) < 3; i++)
        sleep_us(1000);
    check(atomic_load(&called) >= 3, "B1: no hang, %d callbacks",
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
    check(mappings() <= before + 2, "and gone: %d more",
          mappings() - before);
    munmap(p, PAGES * PAGE);
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
    test_closed();
    return api_end();
}
