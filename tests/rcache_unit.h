/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of the cache by its API share (test_rcache*.c). */
#ifndef LAPSE_TESTS_RCACHE_UNIT_H
#define LAPSE_TESTS_RCACHE_UNIT_H

#include "tests/rcache.h"
#include "tests/unit.h"

#define PAGES(n) ((n) * UNIT_PAGE)
#define NO_TICK                                                                \
    (struct lapse_rcache_limits)                                               \
    {                                                                          \
        .idle_ms = LAPSE_RCACHE_NO_TICK                                        \
    }

static struct books books;

static inline lapse_region *got(lapse_rcache *c, size_t page, size_t pages,
                         unsigned access)
{
    lapse_region *r = NULL;
    int err = lapse_rcache_get(c, unit_at(page), PAGES(pages), access, &r);

    cr_assert_eq(err, 0, "%s", strerror(-err));
    return r;
}

static inline void destroy(lapse_rcache *c)
{
    cr_expect_eq(lapse_rcache_destroy(c), 0);
    cr_expect_eq(books.registered, books.deregistered);
    cr_expect_eq(books.wrong, 0);
}

#endif
