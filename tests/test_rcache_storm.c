/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads get, put (also for each other), release, invalidate and flush at
 * random, against a model: every page has a version, which a release makes
 * one more while it is open; a registration keeps the versions that it met.
 * What a get returns must have met at least the versions that were there when
 * it began (G2); nothing is deregistered that somebody holds, nor twice, and
 * in the end nothing was forgotten. Stores are seen late (rcache_buffer.h).
 */
#include "tests/rcache.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/rcache_buffer.h"
#include "tests/unit.h"

#define PAGES 96
#define MOST 8 /* of a registration */
#define WORKERS 4

TestSuite(rcache_storm, .init = unit_start, .timeout = 100);

struct memory {
    size_t first, pages;
    uint32_t met[MOST];
    _Atomic int users;
    _Atomic bool registered;
};

static _Atomic uint32_t version[PAGES];
static _Atomic bool stop;
static _Atomic long stale, in_use, twice, refused, got_some, registered;
static _Atomic(lapse_region *) handed_over[4];
static lapse_rcache *cache;

void rcache_test_pause(void); /* called in the narrow places of rcache/ */

void rcache_test_pause(void)
{
    static __thread uint32_t x = 1;

    x = x * 1664525 + 1013904223;
    if (x >> 24 < 4)
        sched_yield();
    if (x >> 24 == 4)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static size_t page_of(const void *p)
{
    return (size_t)((const char *)p - (const char *)unit_at(0)) / UNIT_PAGE;
}

static int reg(void *addr, size_t len, unsigned access, void *memory,
               void *arg)
{
    struct memory *m = memory;

    (void)access, (void)arg;
    m->first = page_of(addr);
    m->pages = len / UNIT_PAGE;
    for (size_t i = 0; i < m->pages; i++)
        m->met[i] = version[m->first + i];
    m->users = 0;
    m->registered = true;
    registered++;
    return m->met[0] % 97 == 96 ? -ENOMEM : 0;
}

static void dereg(void *addr, size_t len, void *memory, void *arg)
{
    struct memory *m = memory;

    (void)arg;
    in_use += m->users != 0;
    twice += !m->registered || m->first != page_of(addr) ||
             m->pages != len / UNIT_PAGE;
    m->registered = false;
}

static uint32_t random_of(uint64_t *x)
{
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
    return (uint32_t)(*x >> 20);
}

static void look(uint64_t *x)
{
    size_t pages = 1 + random_of(x) % 4;
    size_t first = random_of(x) % (PAGES - pages);
    uint32_t before[4];
    lapse_region *r;

    for (size_t i = 0; i < pages; i++)
        before[i] = version[first + i];
    if (lapse_rcache_get(cache, unit_at(first), pages * UNIT_PAGE, 1, &r)) {
        refused++;
        return;
    }
    struct memory *m = lapse_region_memory(r);
    m->users++;
    twice += !m->registered;
    for (size_t i = 0; i < pages; i++)
        stale += (int32_t)(m->met[first - m->first + i] - before[i]) < 0;
    got_some++;
    if (random_of(x) % 4 == 0) {
        r = atomic_exchange(&handed_over[random_of(x) % 4], r);
        if (!r)
            return;
        m = lapse_region_memory(r);
    }
    m->users--;
    lapse_rcache_put(cache, r);
}

static void *worker(void *arg)
{
    uint64_t x = (uint64_t)(uintptr_t)arg * 2654435761u + 1;

    while (!stop)
        look(&x);
    buffer_leave();
    return NULL;
}

static void *releaser(void *arg)
{
    uint64_t x = (uint64_t)(uintptr_t)arg * 40503u + 7;

    while (!stop) {
        size_t pages = 1 + random_of(&x) % 3;
        size_t first = random_of(&x) % (PAGES - pages);
        lapse_release r;

        lapse_publish_begin(unit_at(first), pages * UNIT_PAGE, &r);
        for (size_t i = 0; i < pages; i++)
            version[first + i]++;
        lapse_publish_end(&r);
        if (random_of(&x) % 16 == 0)
            lapse_rcache_invalidate(cache, unit_at(first), UNIT_PAGE);
        if (random_of(&x) % 256 == 0)
            lapse_rcache_flush(cache);
        for (int i = random_of(&x) % 2000; i; i--)
            __asm__ volatile("");
    }
    return NULL;
}

/* Threads that come and go inherit each other's counters. */
static void *short_lived(void *arg)
{
    uint64_t x = (uint64_t)(uintptr_t)arg + 99;

    for (int i = 0; i < 50; i++)
        look(&x);
    buffer_leave();
    return NULL;
}

static long passed_ms(const struct timespec *begin)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (t.tv_sec - begin->tv_sec) * 1000 +
           (t.tv_nsec - begin->tv_nsec) / 1000000;
}

static void storm(struct lapse_rcache_limits limits, long ms)
{
    struct lapse_rcache_ops ops = {.size = sizeof(ops),
                                   .region_bytes = sizeof(struct memory),
                                   .register_region = reg,
                                   .deregister_region = dereg};
    pthread_t t[WORKERS + 2], once;
    struct timespec begin;
    struct lapse_rcache_stats s;

    limits.size = sizeof(limits);
    limits.idle_ms = 2;
    cr_assert_eq(lapse_rcache_create(&ops, &limits, &cache), 0);
    for (uintptr_t i = 0; i < WORKERS; i++)
        pthread_create(&t[i], NULL, worker, (void *)(i + 1));
    for (uintptr_t i = 0; i < 2; i++)
        pthread_create(&t[WORKERS + i], NULL, releaser, (void *)(i + 1));
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uintptr_t i = 0; passed_ms(&begin) < ms; i++) {
        pthread_create(&once, NULL, short_lived, (void *)i);
        pthread_join(once, NULL);
        unit_sleep_ms(1);
    }
    stop = true;
    for (int i = 0; i < WORKERS + 2; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < 4; i++)
        if (handed_over[i]) {
            ((struct memory *)lapse_region_memory(handed_over[i]))->users--;
            lapse_rcache_put(cache, handed_over[i]);
        }
    s = stats_of(cache);
    cr_expect(s.hits > 100 && s.retried > 0 && s.invalidated > 100);
    cr_expect_eq(stale, 0, "%ld stale", stale);
    cr_expect_eq(in_use, 0, "%ld in use", in_use);
    cr_expect_eq(twice, 0, "%ld twice", twice);
    cr_expect(got_some > 9 * refused, "%ld refused", refused);
    cr_expect_eq(lapse_rcache_destroy(cache), 0);
}

Test(rcache_storm, plain)
{
    storm((struct lapse_rcache_limits){0}, 4000);
}

Test(rcache_storm, with_eviction)
{
    storm((struct lapse_rcache_limits){.max_regions = 20}, 3000);
}

Test(rcache_storm, with_merging)
{
    storm((struct lapse_rcache_limits){.merge_bytes = MOST * UNIT_PAGE,
                                       .max_bytes = 40 * UNIT_PAGE},
          3000);
}

static bool refuse_membarrier(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 4, .filter = code};

    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

Test(rcache_storm, without_membarrier)
{
    cr_assert(refuse_membarrier());
    cr_assert_eq(syscall(SYS_membarrier, 0, 0, 0), -1);
    storm((struct lapse_rcache_limits){0}, 2000);
}
