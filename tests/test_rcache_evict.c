/* SPDX-License-Identifier: BSD-3-Clause */
/* The registration cache's limits: what goes, and when. */
#include "tests/rcache_unit.h"

TestSuite(rcache_evict, .init = unit_start, .timeout = 60);

Test(rcache_evict, evicts_the_least_recently_used)
{
    lapse_rcache *c = books_cache(
        &books, (struct lapse_rcache_limits){.max_regions = 3,
                                             .idle_ms = LAPSE_RCACHE_NO_TICK});
    lapse_region *held;

    touch(c, unit_at(1), 1);
    touch(c, unit_at(3), 1);
    touch(c, unit_at(5), 1);
    touch(c, unit_at(3), 1);
    touch(c, unit_at(1), 1);
    touch(c, unit_at(7), 1); /* 5 goes */
    cr_expect_eq(books.deregistered, 1);
    held = got(c, 3, 1, 1);
    cr_expect_eq(books.asked, 4);
    touch(c, unit_at(1), 1);
    touch(c, unit_at(7), 1);
    cr_expect_eq(books.asked, 4);
    touch(c, unit_at(9), 1); /* 3 is held: 1 goes */
    touch(c, unit_at(3), 1);
    touch(c, unit_at(7), 1);
    cr_expect_eq(books.asked, 5);
    touch(c, unit_at(1), 1);
    cr_expect_eq(books.asked, 6);
    cr_expect_eq(stats_of(c).regions, 3);
    cr_expect_eq(stats_of(c).evicted, 3);
    lapse_rcache_put(c, held);
    destroy(c);
}

Test(rcache_evict, evicts_by_bytes)
{
    lapse_rcache *c = books_cache(
        &books, (struct lapse_rcache_limits){.max_bytes = PAGES(10),
                                             .idle_ms = LAPSE_RCACHE_NO_TICK});

    touch(c, unit_at(100), PAGES(4));
    touch(c, unit_at(110), PAGES(4));
    touch(c, unit_at(120), PAGES(4));
    cr_expect_eq(stats_of(c).bytes, PAGES(8));
    touch(c, unit_at(130), PAGES(10));
    cr_expect_eq(stats_of(c).bytes, PAGES(10));
    cr_expect_eq(stats_of(c).registered_bytes, PAGES(10));
    destroy(c);
}

Test(rcache_evict, neither_align_nor_merging_exceeds_the_bytes)
{
    lapse_rcache *c = books_cache(
        &books, (struct lapse_rcache_limits){.align = PAGES(64),
                                             .merge_bytes = PAGES(64),
                                             .max_bytes = PAGES(10),
                                             .idle_ms = LAPSE_RCACHE_NO_TICK});
    lapse_region *r;

    for (size_t i = 0; i < 40; i += 4) {
        r = got(c, i, 4, 1);
        cr_expect(stats_of(c).registered_bytes <= PAGES(10));
        lapse_rcache_put(c, r);
    }
    lapse_rcache_progress(c);
    r = got(c, 36, 4, 1);
    cr_expect_eq(stats_of(c).hits, 1, "it is there still");
    lapse_rcache_put(c, r);
    destroy(c);
}

Test(rcache_evict, held_regions_may_exceed_a_limit_until_they_are_put)
{
    lapse_rcache *c = books_cache(
        &books, (struct lapse_rcache_limits){.max_regions = 2,
                                             .idle_ms = LAPSE_RCACHE_NO_TICK});
    lapse_region *r[5];

    for (size_t i = 0; i < 5; i++)
        r[i] = got(c, 2 * i, 1, 1);
    cr_expect_eq(books.deregistered, 0);
    for (size_t i = 0; i < 5; i++)
        lapse_rcache_put(c, r[i]);
    lapse_rcache_progress(c);
    cr_expect_eq(stats_of(c).regions, 2);
    destroy(c);
}

/* Ten days of ticks. */
Test(rcache_evict, a_cache_that_grew_old_evicts_the_least_recently_used)
{
    lapse_rcache *c = books_cache(
        &books, (struct lapse_rcache_limits){.max_regions = 2,
                                             .idle_ms = LAPSE_RCACHE_NO_TICK});

    touch(c, unit_at(1), 1);
    touch(c, unit_at(3), 1);
    for (int i = 0; i < (1 << 24) + 100; i++)
        lapse_rcache_progress(c);
    touch(c, unit_at(1), 1);
    touch(c, unit_at(3), 1);
    touch(c, unit_at(5), 1); /* 1 goes */
    touch(c, unit_at(7), 1); /* 3 goes */
    cr_expect_eq(books.asked, 4);
    touch(c, unit_at(5), 1);
    touch(c, unit_at(7), 1);
    cr_expect_eq(books.asked, 4);
    cr_expect_eq(lapse_rcache_destroy(c), 0);
}

Test(rcache_evict, as_many_as_there_can_be)
{
#ifdef __SANITIZE_THREAD__
    cr_skip("a million registrations take minutes under ThreadSanitizer");
#endif
    lapse_rcache *c = books_cache(&books, NO_TICK);
    const int most = 1 << 20;
    lapse_region *held = got(c, 0, 1, 1);

    for (int i = 1; i < most; i++)
        if (touch(c, unit_at((size_t)i), 1))
            break;
    cr_expect_eq(books.asked, most);
    lapse_rcache_invalidate(c, unit_at(0), 1); /* it still is one of them */
    cr_expect_eq(touch(c, unit_at((size_t)most), 1), 0);
    cr_expect_eq(touch(c, unit_at((size_t)most + 1), 1), 0);
    cr_expect_eq(stats_of(c).evicted, 2);
    cr_expect_eq(stats_of(c).misses, most + 2);
    lapse_rcache_put(c, held);
    destroy(c);
}
