/* SPDX-License-Identifier: BSD-3-Clause */
/* The registration cache's limits: what goes, and when. */
#include "tests/rcache.h"

#include "tests/unit.h"

TestSuite(rcache_evict, .init = unit_start, .timeout = 60);

static struct books books;

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
