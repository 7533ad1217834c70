/* SPDX-License-Identifier: BSD-3-Clause */
/* The bridge's table of kept ranges, by itself. */
#include "bridges/kept.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/unit.h"

#define PAGE 4096ul
#define FAR 0x10000000ul

static size_t ranges(void)
{
    struct kept_sum sum;

    kept_sum(&sum);
    return sum.ranges;
}

static size_t bytes(void)
{
    struct kept_sum sum;

    kept_sum(&sum);
    return sum.bytes;
}

static void keep(uintptr_t page, size_t pages, unsigned owner)
{
    uintptr_t start = FAR + page * PAGE, end = start + pages * PAGE;

    cr_assert(kept_reserve(start, end, owner, true));
    kept_publish(start, end);
}

static bool take(uintptr_t page, size_t pages, size_t found)
{
    struct kept_claim c;

    if (!kept_claim(&c, FAR + page * PAGE, FAR + (page + pages) * PAGE))
        return false;
    cr_assert_eq(c.bytes, found * PAGE, "%zu pages, not %zu",
                 c.bytes / PAGE, found);
    kept_take(&c, false);
    return true;
}

static enum kept_fate fate;
static unsigned asked_owner;
static size_t asked;

static enum kept_fate purge(unsigned owner, uintptr_t addr, size_t len)
{
    (void)addr;
    asked_owner = owner;
    asked += len;
    return fate;
}

TestSuite(kept, .init = unit_start);

Test(kept, is_taken_out_in_parts)
{
    keep(10, 10, 1);
    cr_assert(take(0, 10, 0));
    cr_assert(take(20, 10, 0));
    cr_assert(take(13, 4, 4), "from the middle");
    cr_assert_eq(ranges(), 2);
    cr_assert_eq(bytes(), 6 * PAGE);
    cr_assert(take(13, 4, 0), "once");
    cr_assert(take(12, 6, 2), "an end of each");
    cr_assert(take(10, 1, 1), "the beginning");
    cr_assert(take(0, 100, 3), "all");
    cr_assert_eq(ranges(), 0);
}

Test(kept, clears_what_is_resident_only)
{
    char *p = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uintptr_t a = (uintptr_t)p;
    struct kept_claim c;

    memset(p, 5, 3 * PAGE);
    cr_assert(kept_reserve(a, a + PAGE, 1, true));
    cr_assert(kept_reserve(a + PAGE, a + 3 * PAGE, 1, false));
    kept_publish(a, a + 3 * PAGE);
    cr_assert_eq(bytes(), PAGE);
    cr_assert(kept_claim(&c, a, a + 2 * PAGE));
    kept_take(&c, true);
    cr_assert_eq(p[0], 0);
    cr_assert_eq(p[PAGE - 1], 0);
    cr_assert_eq(p[PAGE], 5);
    cr_assert_eq(p[2 * PAGE], 5);
}

Test(kept, has_one_claimant)
{
    struct kept_claim c;

    keep(10, 10, 1);
    cr_assert(kept_claim(&c, FAR + 12 * PAGE, FAR + 14 * PAGE));
    cr_assert(!take(10, 1, 0), "an entry is claimed as a whole");
    fate = KEPT_GONE;
    cr_assert_eq(kept_sweep(KEPT_MAX, KEPT_OWNERS, purge), 0);
    kept_unclaim(&c);
    cr_assert_eq(kept_sweep(KEPT_MAX, KEPT_OWNERS, purge), 10 * PAGE);
    cr_assert(take(10, 10, 10), "nothing is busy any more");
}

Test(kept, counts_only_when_published)
{
    cr_assert(kept_reserve(FAR, FAR + PAGE, 1, true));
    fate = KEPT_GONE;
    cr_assert_eq(kept_sweep(KEPT_MAX, KEPT_OWNERS, purge), 0);
    kept_abandon(FAR, FAR + PAGE);
    cr_assert(take(0, 1, 0));
}

Test(kept, finds_the_gaps)
{
    uintptr_t start = 0, end = 0;
    struct kept_claim c;

    keep(13, 2, 1);
    keep(11, 2, 2);
    keep(17, 1, 2);
    cr_assert(kept_claim(&c, FAR + 10 * PAGE, FAR + 20 * PAGE));
    cr_assert(kept_gap(&c, c.start, &start, &end));
    cr_assert_eq(start, FAR + 10 * PAGE);
    cr_assert_eq(end, FAR + 11 * PAGE);
    cr_assert(kept_gap(&c, end, &start, &end));
    cr_assert_eq(start, FAR + 15 * PAGE);
    cr_assert_eq(end, FAR + 17 * PAGE);
    cr_assert(kept_gap(&c, end, &start, &end));
    cr_assert_eq(start, FAR + 18 * PAGE);
    cr_assert_eq(end, FAR + 20 * PAGE);
    cr_assert(!kept_gap(&c, end, &start, &end));
}

Test(kept, gives_back_what_nobody_watches)
{
    lapse_handle h = unit_poller(0);

    keep(0, 1, 3);
    keep(1, 1, 4);
    lapse_watch(h, (void *)FAR, 1);
    fate = KEPT_GONE;
    cr_assert_eq(kept_sweep(KEPT_MAX, 3, purge), 0, "watched");
    lapse_unwatch(h, (void *)FAR, 1);
    fate = KEPT_STILL;
    cr_assert_eq(kept_sweep(KEPT_MAX, 3, purge), 0, "refused");
    cr_assert_eq(bytes(), 2 * PAGE);
    fate = KEPT_GONE;
    asked = 0;
    cr_assert_eq(kept_sweep(KEPT_MAX, 3, purge), PAGE);
    cr_assert(asked_owner == 3 && asked == PAGE, "the other has its own");
    cr_assert_eq(bytes(), PAGE);
    cr_assert_eq(kept_sweep(KEPT_MAX, 3, purge), 0, "once");
    fate = KEPT_FORGOTTEN;
    cr_assert_eq(kept_sweep(KEPT_MAX, KEPT_OWNERS, purge), PAGE);
    cr_assert(take(0, 2, 1), "one is entered still, the other not");
}

Test(kept, looks_at_a_few_slots_at_a_time)
{
    for (uintptr_t i = 0; i < 10; i++)
        keep(2 * i, 1, 1);
    fate = KEPT_GONE;
    for (int i = 0; i < 3; i++)
        cr_assert_eq(kept_sweep(3, 1, purge), 3 * PAGE);
    cr_assert_eq(kept_sweep(3, 1, purge), PAGE);
}

Test(kept, says_when_it_is_full)
{
    struct kept_claim c;

    keep(0, 3, 1);
    for (uintptr_t i = 1; i < KEPT_MAX; i++)
        keep(10 * i, 1, 1);
    cr_assert(!kept_reserve(FAR - PAGE, FAR, 1, true));
    cr_assert(!kept_claim(&c, FAR + PAGE, FAR + 2 * PAGE),
              "no slot for what lies behind");
    cr_assert_eq(ranges(), KEPT_MAX);
    cr_assert(take(10, 1, 1));
    cr_assert(take(1, 1, 1), "now there is one");
    cr_assert(take(0, 10 * KEPT_MAX, KEPT_MAX));
    cr_assert_eq(ranges(), 0);
}

Test(kept, cuts_what_is_too_long_for_an_entry)
{
    keep(0, 200000, 1);
    cr_assert_eq(bytes(), 200000 * PAGE);
    cr_assert(take(0, 200000, 200000));
}

Test(kept, a_child_finds_nothing_busy)
{
    struct kept_claim c;

    keep(10, 10, 1);
    cr_assert(kept_claim(&c, FAR + 12 * PAGE, FAR + 14 * PAGE));
    cr_assert(kept_reserve(FAR, FAR + PAGE, 1, false));
    kept_fork_child();
    cr_assert_eq(bytes(), 11 * PAGE, "resident, to be sure");
    cr_assert(take(0, 20, 11));
    for (uintptr_t i = 0; i < KEPT_MAX; i++) /* the spare slot is free again */
        keep(2 * i, 1, 1);
}

/* Two threads take pieces of the same entries, another sweeps: each page is
 * found by its own thread, and by nobody else. The entries are in late slots
 * and what is cut off goes to early ones, which a thread that looks for it may
 * have passed. */
enum { ROUNDS = 2000, HALF = 8, EARLY = 400 };
static _Atomic int turn;
static _Atomic bool over;

static void take_half(uintptr_t from)
{
    for (uintptr_t i = 0; i < HALF; i++)
        while (!take(from + (i * 3) % HALF, 1, 1))
            sched_yield();
}

static void *other_half(void *arg)
{
    (void)arg;
    for (int i = 1; i <= ROUNDS; i++) {
        while (atomic_load(&turn) != i)
            sched_yield();
        take_half(HALF);
        atomic_store(&turn, -i);
    }
    return NULL;
}

static void *sweeps(void *arg)
{
    (void)arg;
    while (!atomic_load(&over))
        kept_sweep(KEPT_MAX, KEPT_OWNERS, purge);
    return NULL;
}

Test(kept, is_cut_by_several_at_once)
{
    pthread_t other, sweeper;

    fate = KEPT_GONE;
    pthread_create(&other, NULL, other_half, NULL);
    pthread_create(&sweeper, NULL, sweeps, NULL);
    for (int i = 1; i <= ROUNDS; i++) {
        for (uintptr_t k = 1; k <= EARLY; k++)
            keep(100 * k, 1, 1);
        keep(0, 2 * HALF, 1);
        while (!take(100, 100 * EARLY, EARLY))
            ;
        atomic_store(&turn, i);
        take_half(0);
        while (atomic_load(&turn) != -i)
            sched_yield();
        if (i % 1000 == 0)
            cr_assert_eq(ranges(), 0);
    }
    atomic_store(&over, true);
    pthread_join(other, NULL);
    pthread_join(sweeper, NULL);
    cr_assert(take(0, 2 * HALF, 0));
}
