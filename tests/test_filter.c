/* SPDX-License-Identifier: BSD-3-Clause */
/* The filter against a plain array of counts, and what its promises cost. */
#include "shim/filter.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim/range.h"
#include "shim/slab.h"

#define MIB ((uintptr_t)1 << 20)
#define GIB ((uintptr_t)1 << 30)
#define BIG (2 * MIB) /* what one bit above the leaves stands for */
#define PAGES 4096u
#define STEPS 6000
#define BEFORE 1536u /* pages of the model below the boundary */

static struct filter filter;

/* The model: how often each page of [base, base + PAGES) is watched. */
static unsigned char count[PAGES];
static uintptr_t base;
static uint64_t random_state;

static unsigned draw(unsigned below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)(random_state >> 33) % below;
}

static uintptr_t at(unsigned page)
{
    return base + page * PAGE_SIZE;
}

/* Some range [*a, *b): often a few pages, often whole big children. */
static void draw_range(unsigned *a, unsigned *b)
{
    *a = draw(PAGES);
    *b = *a + 1 + draw(draw(2) ? 8 : 1200);
    if (!draw(3)) {
        *a &= ~511u;
        *b = *a + 512 * (1 + draw(3));
    }
    if (*b > PAGES)
        *b = PAGES;
}

static bool model_query(unsigned a, unsigned b)
{
    for (; a < b; a++)
        if (count[a])
            return true;
    return false;
}

static int model_unwatch(unsigned a, unsigned b)
{
    for (unsigned i = a; i < b; i++)
        if (!count[i])
            return -ENOENT;
    for (unsigned i = a; i < b; i++)
        count[i]--;
    return 0;
}

static void check_all(const char *when)
{
    for (unsigned i = 0; i < PAGES; i++)
        cr_assert_eq(filter_query(&filter, at(i), at(i + 1)), count[i] != 0,
                     "%s: page %u, watched %u times", when, i, count[i]);
}

static void step(unsigned n)
{
    unsigned a, b;
    int want;

    draw_range(&a, &b);
    switch (draw(3)) {
    case 0:
        for (unsigned i = a; i < b; i++)
            if (count[i] == 255)
                return;
        for (unsigned i = a; i < b; i++)
            count[i]++;
        cr_assert_eq(filter_watch(&filter, at(a), at(b)), 0);
        break;
    case 1: /* mostly what can succeed */
        while (draw(8) && b > a + 1 && !count[a])
            a++;
        for (unsigned i = a; draw(8) && i < b; i++)
            if (!count[i])
                b = i > a ? i : b;
        want = model_unwatch(a, b);
        cr_assert_eq(filter_unwatch(&filter, at(a), at(b)), want,
                     "step %u: unwatch %u to %u, want %d", n, a, b, want);
        break;
    default:
        cr_assert_eq(filter_query(&filter, at(a), at(b)), model_query(a, b),
                     "step %u: query %u to %u", n, a, b);
    }
    if (n % 100 == 0)
        check_all("after a step");
}

static void unwatch_everything(void)
{
    for (unsigned i = 0; i < PAGES; i++)
        while (count[i]) {
            count[i]--;
            cr_assert_eq(filter_unwatch(&filter, at(i), at(i + 1)), 0);
        }
}

static void against_the_model(uintptr_t boundary)
{
    const char *seed = getenv("TEST_SEED");

    random_state = seed ? strtoull(seed, NULL, 0) : 20260101;
    printf("filter: TEST_SEED=%lu\n", (unsigned long)random_state);
    base = boundary - BEFORE * PAGE_SIZE;
    for (unsigned n = 0; n < STEPS; n++)
        step(n);
    check_all("at the end");
    unwatch_everything();
    check_all("after everything was taken back");
    cr_assert(!filter_query(&filter, 0, USER_END));
    cr_assert_eq(slab_bytes(), (sizeof(struct filter_node) + 63) / 64 * 64,
                 "only the root may be left");
    filter_clear(&filter);
    cr_assert_eq(slab_bytes(), 0);
}

Test(filter, agrees_with_the_model_around_2_mib)
{
    against_the_model(5 * GIB + 64 * MIB);
}

Test(filter, agrees_with_the_model_around_1_gib)
{
    against_the_model(5 * GIB);
}

Test(filter, agrees_with_the_model_around_512_gib)
{
    against_the_model(512 * GIB);
}

Test(filter, agrees_with_the_model_at_the_end_of_user_space)
{
    against_the_model(USER_END - (PAGES - BEFORE) * PAGE_SIZE);
}

static bool watches(uintptr_t page)
{
    return filter_query(&filter, page, page + PAGE_SIZE);
}

Test(filter, empty_says_no)
{
    cr_assert(!filter_query(&filter, 0, USER_END));
    cr_assert_eq(filter_unwatch(&filter, GIB, GIB + PAGE_SIZE), -ENOENT);
    filter_clear(&filter);
}

Test(filter, counts)
{
    for (uintptr_t len = PAGE_SIZE; len <= GIB; len *= 512) {
        for (int i = 0; i < 3; i++)
            cr_assert_eq(filter_watch(&filter, GIB, GIB + len), 0);
        for (int i = 0; i < 3; i++) {
            cr_assert(watches(GIB + len - PAGE_SIZE));
            cr_assert_eq(filter_unwatch(&filter, GIB, GIB + len), 0);
        }
        cr_assert(!watches(GIB + len - PAGE_SIZE));
        cr_assert_eq(filter_unwatch(&filter, GIB, GIB + len), -ENOENT);
    }
}

/* A big watch and single ones in it come and go in either order. */
Test(filter, keeps_big_and_small_apart)
{
    uintptr_t page = GIB + 7 * PAGE_SIZE;

    filter_watch(&filter, page, page + PAGE_SIZE);
    filter_watch(&filter, GIB, GIB + BIG);
    cr_assert_eq(filter_unwatch(&filter, GIB, GIB + BIG), 0);
    cr_assert(watches(page));
    cr_assert(!watches(page + PAGE_SIZE));
    filter_watch(&filter, GIB, GIB + BIG);
    cr_assert_eq(filter_unwatch(&filter, page, page + PAGE_SIZE), 0);
    cr_assert(watches(page));
    cr_assert_eq(filter_unwatch(&filter, GIB, GIB + BIG), 0);
    cr_assert(!filter_query(&filter, 0, USER_END));
}

Test(filter, gives_back_a_part_of_a_big_watch)
{
    uintptr_t end = 2 * GIB, hole = GIB + 300 * MIB;

    filter_watch(&filter, GIB, end);
    filter_watch(&filter, GIB, end);
    cr_assert_eq(filter_unwatch(&filter, hole, hole + PAGE_SIZE), 0);
    cr_assert(watches(hole), "watched twice, taken back once");
    cr_assert_eq(filter_unwatch(&filter, hole, hole + PAGE_SIZE), 0);
    cr_assert(!watches(hole));
    cr_assert(watches(hole - PAGE_SIZE));
    cr_assert(watches(hole + PAGE_SIZE));
    cr_assert_eq(filter_unwatch(&filter, GIB, end), -ENOENT);
    for (int i = 0; i < 2; i++) {
        cr_assert(watches(GIB));
        cr_assert(watches(end - PAGE_SIZE));
        cr_assert_eq(filter_unwatch(&filter, GIB, hole), 0);
        cr_assert_eq(filter_unwatch(&filter, hole + PAGE_SIZE, end), 0);
    }
    cr_assert(!filter_query(&filter, 0, USER_END));
}

Test(filter, enoent_changes_nothing)
{
    uintptr_t end = GIB + 2 * BIG;

    /* watched but for one page near the end, partly by a whole child */
    filter_watch(&filter, GIB, end - PAGE_SIZE);
    cr_assert_eq(filter_unwatch(&filter, GIB, end), -ENOENT);
    for (uintptr_t p = GIB; p < end - PAGE_SIZE; p += PAGE_SIZE)
        cr_assert(watches(p));
    cr_assert(!watches(end - PAGE_SIZE));
    cr_assert_eq(filter_unwatch(&filter, GIB, end - PAGE_SIZE), 0);
    cr_assert(!filter_query(&filter, 0, USER_END));
}

/* The leaf's count of a page, found as the tree is laid out. */
static uint32_t *extra_of(uintptr_t page)
{
    struct filter_leaf *n = &filter.root->leaf;

    for (int level = FILTER_ROOT_LEVEL; level > 0; level--)
        n = ((struct filter_node *)n)
                ->child[page >> (PAGE_SHIFT + level * FILTER_WAYS_BITS) &
                        (FILTER_WAYS - 1)];
    return &n->extra[page >> PAGE_SHIFT & (FILTER_WAYS - 1)];
}

/* 2^32 watches would take an hour: the count is set by hand. */
Test(filter, eoverflow_changes_nothing)
{
    uintptr_t last = GIB + 9 * PAGE_SIZE;

    filter_watch(&filter, last, last + PAGE_SIZE);
    filter_watch(&filter, last, last + PAGE_SIZE);
    *extra_of(last) = UINT32_MAX;
    cr_assert_eq(filter_watch(&filter, GIB, last + PAGE_SIZE), -EOVERFLOW);
    cr_assert(!filter_query(&filter, GIB, last));
    cr_assert_eq(*extra_of(last), UINT32_MAX);
    *extra_of(last) = 1;
    cr_assert_eq(filter_watch(&filter, GIB, last + PAGE_SIZE), 0);
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* By pages this would be 2^28 steps and 32 MiB of bits. */
Test(filter, is_quick_and_small_for_a_tebibyte)
{
    uintptr_t start = 3 * GIB + PAGE_SIZE, end = start + 1024 * GIB;
    double t0 = seconds();

    for (int i = 0; i < 100; i++)
        cr_assert_eq(filter_watch(&filter, start, end), 0);
    for (int i = 0; i < 100000; i++)
        cr_assert(!filter_query(&filter, end, USER_END));
    cr_assert(watches(start) && watches(end - PAGE_SIZE));
    cr_assert(!watches(start - PAGE_SIZE) && !watches(end));
    cr_assert_lt(slab_bytes(), 128 << 10);
    for (int i = 0; i < 100; i++)
        cr_assert_eq(filter_unwatch(&filter, start, end), 0);
    cr_assert(!filter_query(&filter, 0, USER_END));
    cr_assert_lt(seconds() - t0, 1.0);
}

#define ROUNDS 6000
#define KEPT (GIB + 100 * PAGE_SIZE)

static _Atomic int done, misses;

static void *ask(void *unused)
{
    while (!done)
        if (!watches(KEPT))
            misses++;
    return unused;
}

/*
 * W1: a page that is watched throughout is never missed, while what stands
 * for it moves between its own bit and that of the whole child.
 */
Test(filter, never_says_no_of_a_watched_page)
{
    pthread_t t[2];

    filter_watch(&filter, KEPT, KEPT + PAGE_SIZE);
    for (int i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, ask, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        filter_watch(&filter, GIB, GIB + BIG);
        filter_unwatch(&filter, KEPT, KEPT + PAGE_SIZE);
        filter_unwatch(&filter, GIB, KEPT);
        filter_unwatch(&filter, KEPT + PAGE_SIZE, GIB + BIG);
    }
    done = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    cr_assert_eq(misses, 0);
    cr_assert_eq(filter_unwatch(&filter, KEPT, KEPT + PAGE_SIZE), 0);
    cr_assert(!filter_query(&filter, 0, USER_END));
}

/* filter_span against the model: right at every page, and never too far. */
Test(filter, spans)
{
    random_state = 7;
    base = 3 * GIB - BEFORE * PAGE_SIZE;
    filter_clear(&filter);
    memset(count, 0, sizeof(count));
    for (unsigned i = 0; i < 40; i++) {
        unsigned a, b;

        draw_range(&a, &b);
        cr_assert_eq(filter_watch(&filter, at(a), at(b)), 0);
        for (unsigned k = a; k < b; k++)
            count[k]++;
        for (unsigned page = 0; page < PAGES;) {
            uintptr_t until;
            bool is = filter_span(&filter, at(page), &until);
            unsigned k = page;

            cr_assert_gt(until, at(page));
            for (; k < PAGES && at(k) < until; k++)
                cr_assert_eq(is, count[k] != 0, "page %u of step %u", k, i);
            page = k;
        }
    }
}

/* Few steps, however much is watched; beyond all, one. */
Test(filter, spans_are_long)
{
    uintptr_t until, to = 5 * GIB;
    unsigned steps = 0;

    filter_clear(&filter);
    cr_assert(!filter_span(&filter, GIB, &until));
    cr_assert_eq(until, USER_END);
    cr_assert_eq(filter_watch(&filter, GIB, to), 0);
    for (uintptr_t p = GIB; p < to; p = until, steps++)
        cr_assert(filter_span(&filter, p, &until));
    cr_assert_eq(steps, 4);
    cr_assert(!filter_span(&filter, 0, &until) && until == GIB);
    cr_assert(!filter_span(&filter, to, &until) && until == USER_END);
}
