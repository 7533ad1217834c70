/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * No stale hit (G2). Thread A unmaps pages, B gets the same addresses back and
 * bumps the version of each, C looks all of them up all the time in a toy
 * cache that follows the protocol in lapse.h.
 *
 * The truth is the slot's version: even, two more for each time that B got the
 * address; odd while B tries. Pinning asks the kernel whether the page is there
 * and takes the version that stood before and after, so that a registration
 * knows which memory it is of. A hit that is of an older version than the one
 * C saw before its lookup began is stale: that is the failure. Most pages are
 * never touched: a release then needs no interrupt of the other processor, and
 * there are four times as many rounds.
 *
 * C looks up at any time, hence also while A is in its release: then it drops
 * and registers the old memory anew before the kernel acted. That is taken out
 * by lapse_watch, which meets the release, or with --all, where nothing is
 * watched (LAPSE_ALL), by the second telling of an OPEN event alone. The test
 * library has delays that make this certain, and a switch that takes the second
 * telling away; with it the test must fail:
 *     LAPSE_TEST_NO_REDELIVERY=1 LAPSE_TEST_DELAY_BEFORE=20000 \
 *         api_stale --all --expect-stale 20000
 * With --inline, A enters the kernel by an instruction of its own: only
 * LAPSE_BACKSTOP=uffd helps then.
 * Usage: api_stale [--all] [--inline] [--expect-stale] [ROUNDS]
 */
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

#include "api.h"
#include "shim/sys.h"

#define SLOTS 32
#define STRIDE (2 * PAGE) /* a page that stays mapped lies between two */
#define BATCH 16
#define TRIES 4
#define TOUCHED 16 /* one of so many pages is written to */

enum turn { TURN_A, TURN_B, TURN_C };

static struct slot {
    _Alignas(64) _Atomic int turn;
    _Atomic uint64_t version;
} slots[SLOTS];
static char *base;
static atomic_bool stop;
static long rounds = 1000000;
static bool by_itself; /* --inline */
static bool all; /* no watches: every release is told */
static atomic_long stale;

/* C's alone: what the cache holds. */
static struct entry {
    uint64_t cookie;
    bool valid;
} entries[SLOTS];
static bool hit_by_event[SLOTS];
static lapse_handle handle;
static struct {
    uint64_t lookups, hits, misses, events, retries, uncached, overflows;
} count;

static char *slot_page(unsigned i)
{
    return base + i * STRIDE;
}

/* Where no mmap without an address ever looks, so nobody else takes a hole. */
static void reserve(void)
{
    static const uintptr_t places[] = {0x6000000000, 0x200000000000, 0};

    for (unsigned i = 0; i < 3 && !base; i++) {
        char *p = mmap((void *)places[i], SLOTS * STRIDE, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS |
                           (places[i] ? MAP_FIXED_NOREPLACE : 0), -1, 0);

        if (p != MAP_FAILED)
            base = p;
    }
    need(base != NULL, "no room for the slots");
}

static bool take_page(unsigned i, int how)
{
    _Atomic uint64_t *truth = &slots[i].version;
    uint64_t version = atomic_load_explicit(truth, memory_order_relaxed);
    char *p;

    /* seq_cst: before the kernel acts, whatever it does */
    atomic_store_explicit(truth, version + 1, memory_order_seq_cst);
    p = mmap(slot_page(i), PAGE, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | how, -1, 0);
    atomic_store_explicit(truth, p == MAP_FAILED ? version : version + 2,
                          memory_order_seq_cst);
    if (p != MAP_FAILED && version / 2 % TOUCHED == 0)
        p[0] = 1;
    return p != MAP_FAILED;
}

/* The memory that is there now, by its version; 0 if none, or in between. */
static uint64_t pin(unsigned i)
{
    _Atomic uint64_t *truth = &slots[i].version;
    uint64_t version = atomic_load_explicit(truth, memory_order_acquire);
    unsigned char core;

    if (version % 2 || mincore(slot_page(i), PAGE, &core) != 0 ||
        atomic_load_explicit(truth, memory_order_acquire) != version)
        return 0;
    return version;
}

/* Unmaps whatever is its turn. B may try from before the call on. */
static void *thread_a(void *unused)
{
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        bool idle = true;

        for (unsigned i = 0; i < SLOTS; i++) {
            if (atomic_load_explicit(&slots[i].turn, memory_order_acquire) !=
                TURN_A)
                continue;
            idle = false;
            atomic_store_explicit(&slots[i].turn, TURN_B,
                                  memory_order_release);
            if (by_itself)
                sys(SYS_munmap, slot_page(i), PAGE);
            else
                munmap(slot_page(i), PAGE);
        }
        if (idle)
            sched_yield();
    }
    return unused;
}

static void *thread_b(void *unused)
{
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        bool idle = true;

        for (unsigned i = 0; i < SLOTS; i++) {
            if (atomic_load_explicit(&slots[i].turn, memory_order_acquire) !=
                    TURN_B ||
                !take_page(i, MAP_FIXED_NOREPLACE))
                continue;
            idle = false;
            atomic_store_explicit(&slots[i].turn, TURN_C,
                                  memory_order_release);
        }
        /* Let C see the old memory between two tries. */
        for (int i = 0; i < 200 && idle; i++)
            __builtin_ia32_pause();
        if (idle)
            sched_yield();
    }
    return unused;
}

static void watch(unsigned i)
{
    int err = all ? 0 : lapse_watch(handle, slot_page(i), PAGE);

    if (err)
        check(false, "lapse_watch of slot %u: %s", i, strerror(-err));
}

static void unwatch(unsigned i)
{
    int err = all ? 0 : lapse_unwatch(handle, slot_page(i), PAGE);

    if (err)
        check(false, "lapse_unwatch of slot %u: %s", i, strerror(-err));
}

static void drop(unsigned i)
{
    hit_by_event[i] = true;
    if (entries[i].valid)
        unwatch(i);
    entries[i].valid = false;
}

static void drop_overlapping(const struct lapse_event *e)
{
    uintptr_t first, last;

    if (e->flags & LAPSE_EVENT_OVERFLOW) {
        count.overflows++;
        for (unsigned i = 0; i < SLOTS; i++)
            drop(i);
        return;
    }
    first = e->addr < (uintptr_t)base ? 0 : (e->addr - (uintptr_t)base) /
                                                STRIDE;
    last = (e->addr + e->len - 1 - (uintptr_t)base) / STRIDE;
    for (uintptr_t i = first; i <= last && i < SLOTS; i++)
        if (event_overlaps(e, slot_page((unsigned)i), PAGE))
            drop((unsigned)i);
}

static void drain(void)
{
    struct lapse_event ev[BATCH];
    int n;

    while ((n = lapse_poll(handle, ev, BATCH)) > 0) {
        for (int i = 0; i < n; i++)
            drop_overlapping(&ev[i]);
        count.events += (uint64_t)n;
        if (n < BATCH)
            break;
    }
    if (n < 0)
        check(false, "lapse_poll: %s", strerror(-n));
}

/* The miss path: watch, pin, look again, insert. Gives up after some tries:
 * a release that is open for long is told in every round. */
static void enter(unsigned i)
{
    for (int try = 0; try < TRIES; try++) {
        uint64_t cookie;

        watch(i);
        hit_by_event[i] = false;
        cookie = pin(i);
        if (cookie == 0) {
            unwatch(i);
            return;
        }
        if (lapse_pending(handle))
            drain();
        if (!hit_by_event[i]) {
            entries[i] = (struct entry){cookie, true};
            return;
        }
        unwatch(i);
        count.retries++;
    }
    count.uncached++;
}

static void look_up(unsigned i)
{
    uint64_t truth = atomic_load_explicit(&slots[i].version,
                                          memory_order_acquire) & ~1ul;

    count.lookups++;
    if (lapse_pending(handle))
        drain();
    if (!entries[i].valid) {
        count.misses++;
        enter(i);
        return;
    }
    count.hits++;
    if (entries[i].cookie < truth) {
        if (atomic_fetch_add(&stale, 1) == 0)
            printf("stale hit: slot %u, lookup %lu: registered version %lu, "
                   "was %lu before the lookup\n", i,
                   (unsigned long)count.lookups,
                   (unsigned long)entries[i].cookie, (unsigned long)truth);
        drop(i); /* and go on counting */
    }
}

/* Stale hits that are expected need another thread at the right moment: on a
 * busy machine that may take longer. */
static bool enough(long done, bool expect)
{
    return done >= rounds && (!expect || atomic_load(&stale) ||
                              done >= 50 * rounds);
}

/* Thread C; returns the rounds that were done in that time. */
static long thread_c(uint64_t until, bool expect)
{
    long done = 0;

    while (!enough(done, expect) && now_ns() < until) {
        bool idle = true;

        for (unsigned i = 0; i < SLOTS; i++) {
            int turn = atomic_load_explicit(&slots[i].turn,
                                            memory_order_acquire);

            look_up(i);
            if (turn == TURN_C) {
                idle = false;
                done++;
                look_up(i); /* a hit mostly: what is to lapse next */
                /* Evict some: a release of what nobody watches begins, and
                 * C registers it while that runs. */
                if (done % 3 == 0)
                    drop(i);
                atomic_store_explicit(&slots[i].turn, TURN_A,
                                      memory_order_release);
            }
        }
        if (idle) /* A or B may need this processor */
            sched_yield();
    }
    return done;
}

int main(int argc, char **argv)
{
    bool expect = false;
    uint64_t start = now_ns();
    pthread_t a, b;
    long done;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--all"))
            all = true;
        else if (!strcmp(argv[i], "--inline"))
            by_itself = true;
        else if (!strcmp(argv[i], "--expect-stale"))
            expect = true;
        else
            rounds = atol(argv[i]);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    reserve();
    for (unsigned i = 0; i < SLOTS; i++)
        need(take_page(i, MAP_FIXED), "mmap of a slot");
    handle = subscribe(LAPSE_POLL, all ? LAPSE_ALL : 0, NULL, NULL);
    need(pthread_create(&a, NULL, thread_a, NULL) == 0, "pthread_create");
    need(pthread_create(&b, NULL, thread_b, NULL) == 0, "pthread_create");
    done = thread_c(start + 220000000000u, expect);
    atomic_store(&stop, true);
    pthread_join(a, NULL);
    pthread_join(b, NULL);

    printf("rounds %ld in %.1f s: lookups %lu hits %lu misses %lu events %lu "
           "retries %lu uncached %lu overflows %lu\n", done,
           (double)(now_ns() - start) / 1e9, (unsigned long)count.lookups,
           (unsigned long)count.hits, (unsigned long)count.misses,
           (unsigned long)count.events, (unsigned long)count.retries,
           (unsigned long)count.uncached, (unsigned long)count.overflows);
    check(done >= rounds, "%ld rounds in 220 s", rounds);
    /* A cache that never hits has no stale hits either. */
    check(count.hits > (uint64_t)done / 2, "the cache was hit");
    if (expect)
        check(atomic_load(&stale) > 0, "stale hits were found: %ld",
              atomic_load(&stale));
    else
        check(atomic_load(&stale) == 0, "stale hits: %ld",
              atomic_load(&stale));
    check(lapse_unsubscribe(handle) == 0, "unsubscribed");
    return api_end();
}
