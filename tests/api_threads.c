/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What threads release when they are all but gone is told as well: by
 * destructors of keys, in every round of them, by destructors of thread_local
 * variables, by libc that gives stacks back, and by threads that clone() made
 * without a thread pointer of their own. A cache is used there, too. That the
 * releases do what they should is victims/lifetimes.c.
 * Usage: api_threads [THREADS]
 */
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

#include "rcache/lapse_rcache.h"

#include "api.h"

#define AT_ONCE 8
#define ROUNDS PTHREAD_DESTRUCTOR_ITERATIONS
#define EVENTS 64
#define BIG_STACK (48ul << 20) /* more than libc keeps */
#define PAGES 500 /* at most at once */

/* What thread_local of C++ ends up in. */
extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern void *__dso_handle;

static lapse_handle sub;
static pthread_key_t key;
static lapse_rcache *cache;
static char cached[2 * PAGE];
static atomic_ulong wrong;

/* What one thread is to release: a page in each round and one more. */
struct one {
    pthread_t thread;
    char *page[ROUNDS + 1];
    int round;
};

static int registered(void *addr, size_t len, unsigned access, void *memory,
                      void *arg)
{
    (void)addr;
    (void)len;
    (void)access;
    (void)memory;
    (void)arg;
    return 0;
}

static void deregistered(void *addr, size_t len, void *memory, void *arg)
{
    registered(addr, len, 0, memory, arg);
}

static void use_cache(void)
{
    lapse_region *region;

    if (lapse_rcache_get(cache, cached, sizeof cached, LAPSE_RCACHE_READ,
                         &region))
        atomic_fetch_add(&wrong, 1);
    else
        lapse_rcache_put(cache, region);
}

static void destroy(void *arg)
{
    struct one *one = arg;

    use_cache();
    if (munmap(one->page[one->round++], PAGE))
        atomic_fetch_add(&wrong, 1);
    pthread_setspecific(key, one); /* once more */
}

static void destroy_local(void *arg)
{
    struct one *one = arg;

    use_cache();
    if (munmap(one->page[ROUNDS], PAGE))
        atomic_fetch_add(&wrong, 1);
}

static void *short_one(void *arg)
{
    pthread_setspecific(key, arg);
    __cxa_thread_atexit_impl(destroy_local, arg, &__dso_handle);
    return NULL;
}

/* How many of these pages are in what waits, OVERFLOW aside; all is taken. */
static unsigned long heard(char *const *page, int n)
{
    struct lapse_event event[EVENTS];
    bool hit[PAGES] = {false};
    unsigned long sum = 0;
    int got;

    do {
        got = lapse_poll(sub, event, EVENTS);
        need(got >= 0, "lapse_poll");
        for (int i = 0; i < got; i++)
            for (int k = 0; k < n; k++)
                hit[k] |= !(event[i].flags & LAPSE_EVENT_OVERFLOW) &&
                          event_overlaps(&event[i], page[k], PAGE);
    } while (got == EVENTS);
    for (int k = 0; k < n; k++)
        sum += hit[k];
    return sum;
}

static unsigned long some_short(void)
{
    static struct one all[AT_ONCE];
    char *page[AT_ONCE * (ROUNDS + 1)];
    int n = 0;

    for (int i = 0; i < AT_ONCE; i++) {
        all[i].round = 0;
        for (int k = 0; k <= ROUNDS; k++) {
            page[n] = all[i].page[k] = fresh(PAGE);
            need(!lapse_watch(sub, page[n++], PAGE), "watch");
        }
        need(!pthread_create(&all[i].thread, NULL, short_one, &all[i]),
             "a thread");
    }
    for (int i = 0; i < AT_ONCE; i++)
        pthread_join(all[i].thread, NULL);
    for (int i = 0; i < n; i++)
        lapse_unwatch(sub, page[i], PAGE);
    return heard(page, n);
}

static void test_short(unsigned long threads)
{
    struct lapse_rcache_ops ops = {.size = sizeof ops,
                                   .register_region = registered,
                                   .deregister_region = deregistered};
    struct lapse_rcache_stats stats = {.size = sizeof stats};
    unsigned long told = 0, made = 0;

    need(!pthread_key_create(&key, destroy) &&
             !lapse_rcache_create(&ops, NULL, &cache), "a cache");
    for (; made < threads; made += AT_ONCE)
        told += some_short();
    check(told == made * (ROUNDS + 1) && !wrong,
          "%lu threads, released by destructors and told: %lu of %lu pages",
          made, told, made * (ROUNDS + 1));
    lapse_rcache_stats(cache, &stats);
    check(stats.threads <= AT_ONCE + 2 &&
              stats.hits + stats.misses >= made * (ROUNDS + 1),
          "a cache used by them: %lu times, it keeps counters of %lu threads",
          (unsigned long)(stats.hits + stats.misses),
          (unsigned long)stats.threads);
    check(!lapse_rcache_destroy(cache), "nothing in it is held");
}

static void *watch_stack(void *arg)
{
    char here[64 * PAGE], **page = arg;

    memset(here, 1, sizeof here);
    KEEP(arg);
    *page = (char *)(((uintptr_t)here + PAGE) & -PAGE);
    need(!lapse_watch(sub, *page, PAGE), "watch");
    return NULL;
}

/* The kept ones are emptied as the thread ends, the big ones are unmapped. */
static void test_stacks(size_t size, int n, const char *what)
{
    pthread_attr_t attr;
    unsigned long told = 0;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, size);
    for (int i = 0; i < n; i++) {
        pthread_t thread;
        char *page;

        need(!pthread_create(&thread, &attr, watch_stack, &page), "a thread");
        pthread_join(thread, NULL);
        told += heard(&page, 1);
        lapse_unwatch(sub, page, PAGE);
    }
    check(told == (unsigned long)n, "%s: %lu of %d told", what, told, n);
}

static char *twin_page[PAGES];
static _Atomic int twin_alive;

/* No errno, no lock, no malloc: they are those of who made it. */
static int twin(void *unused)
{
    (void)unused;
    for (int i = 0; i < PAGES; i++)
        munmap(twin_page[i], PAGE);
    syscall(SYS_exit, 0);
    return 0;
}

static void test_twin(void)
{
    unsigned long told;

    for (int i = 0; i < PAGES; i++) {
        twin_page[i] = fresh(PAGE);
        need(!lapse_watch(sub, twin_page[i], PAGE), "watch");
    }
    atomic_store(&twin_alive, 1);
    need(clone(twin, fresh(16 * PAGE) + 16 * PAGE,
               CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND |
                   CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID,
               NULL, NULL, NULL, &twin_alive) > 0, "clone");
    while (atomic_load(&twin_alive))
        sched_yield();
    told = heard(twin_page, PAGES);
    check(told == PAGES, "released by a thread of clone(): %lu of %d told",
          told, PAGES);
}

int main(int argc, char **argv)
{
    unsigned long threads = argc > 1 ? strtoul(argv[1], NULL, 0) : 3000;

    sub = subscribe(LAPSE_POLL, 0, NULL, NULL);
    test_short(threads);
    test_stacks(1 << 20, 200, "stacks that libc keeps");
    test_stacks(BIG_STACK, 50, "stacks that libc unmaps");
    test_twin();
    return api_end();
}
