/* SPDX-License-Identifier: BSD-3-Clause */
#include "shim/lapse.h"

#include <errno.h>
#include <string.h>

#include "tests/unit.h"

TestSuite(stats, .init = unit_start);

static struct lapse_stats stats(void)
{
    struct lapse_stats s = {.size = sizeof(s)};

    cr_assert_eq(lapse_stats(&s), 0);
    return s;
}

Test(stats, refuses)
{
    struct lapse_stats s = {.size = sizeof(s) - 1};

    cr_expect_eq(lapse_stats(NULL), -EINVAL);
    cr_expect_eq(lapse_stats(&s), -EINVAL);
    s.size = 0;
    cr_expect_eq(lapse_stats(&s), -EINVAL);
    s.size = 2 * sizeof(s); /* a later version of it */
    cr_expect_eq(lapse_stats(&s), 0);
    cr_expect_eq(s.size, sizeof(s), "how much of it was filled");
}

Test(stats, begin_with_nothing)
{
    struct lapse_stats s = stats(), none = {.size = sizeof(none)};

    s.in_flight_high = 0; /* 1: a table has at least one slot */
    cr_assert_eq(memcmp(&s, &none, sizeof(s)), 0);
}

Test(stats, count_releases)
{
    const struct lapse_path_stats *p;
    struct lapse_stats s;

    lapse_publish((char *)unit_at(0) + 4095, 2);
    lapse_publish(unit_at(0), 3 * UNIT_PAGE);
    lapse_publish(NULL, 1); /* none */
    s = stats();
    p = &s.path[LAPSE_PATH_PUBLISH];
    cr_expect_eq(p->calls, 2);
    cr_expect_eq(p->releases, 2);
    cr_expect_eq(p->bytes, 5 * UNIT_PAGE);
    cr_expect_eq(p->inside_allocator + p->inside_libc + p->inside_loader, 0);
    for (int i = 0; i < LAPSE_PATH_PUBLISH; i++)
        cr_expect_eq(s.path[i].calls, 0);
}

Test(stats, count_what_became_of_them)
{
    lapse_handle all = unit_poller(LAPSE_ALL), some = unit_poller(0);
    struct lapse_event e[4];
    struct lapse_stats s;

    lapse_watch(some, unit_at(1), 1);
    lapse_publish(unit_at(0), 1);
    lapse_publish(unit_at(1), 1);
    lapse_poll(all, e, 4);
    s = stats();
    cr_expect_eq(s.published, 3);
    cr_expect_eq(s.filtered, 1);
    cr_expect_eq(s.delivered, 2);
    cr_expect_eq(s.overflowed, 0);
    cr_expect_eq(s.subscribers, 2);
    cr_expect_eq(s.pool_size, 2 * UNIT_RECORDS);
    cr_expect_eq(s.pool_high, 2);
    cr_expect_gt(s.watch_bytes, 0);
    lapse_unwatch(some, unit_at(1), 1);
    cr_expect_lt(stats().watch_bytes, s.watch_bytes);
    lapse_unsubscribe(some);
    s = stats();
    cr_expect_eq(s.watch_bytes, 0);
    cr_expect_eq(s.subscribers, 1);
}

Test(stats, know_the_high_water)
{
    lapse_handle h = unit_poller(LAPSE_ALL);
    lapse_release r[7];
    struct lapse_event e[8];

    for (int i = 0; i < 7; i++)
        lapse_publish_begin(unit_at(i), 1, &r[i]);
    for (int i = 0; i < 7; i++)
        lapse_publish_end(&r[i]);
    cr_assert_eq(lapse_poll(h, e, 8), 7);
    lapse_publish(unit_at(0), 1);
    cr_expect_eq(stats().in_flight_high, 7);
    cr_expect_eq(stats().pool_high, 7);
}

Test(stats, count_overflow)
{
    unit_poller(LAPSE_ALL);
    for (size_t i = 0; i < UNIT_RECORDS; i++)
        lapse_publish(unit_at(i), 1);
    cr_expect_eq(stats().overflowed, 0);
    lapse_publish(unit_at(0), 1);
    cr_expect_geq(stats().overflowed, 1);
}

Test(stats, names)
{
    static const char *const reasons[] = {
        "munmap", "replace", "mremap", "brk",  "shmdt",   "madvise",
        "unload", "file",    "free",   "user", "overflow"};

    for (unsigned i = 0; i <= LAPSE_REASON_OVERFLOW; i++)
        cr_expect_str_eq(lapse_reason_name(i), reasons[i]);
    cr_expect_str_eq(lapse_reason_name(LAPSE_REASON_OVERFLOW + 1), "?");
    cr_expect_str_eq(lapse_reason_name(-1u), "?");
    cr_expect_str_eq(lapse_path_name(LAPSE_PATH_MUNMAP), "munmap");
    cr_expect_str_eq(lapse_path_name(LAPSE_PATH_REMAP_FILE_PAGES),
                     "remap_file_pages");
    cr_expect_str_eq(lapse_path_name(LAPSE_PATH_PUBLISH), "publish");
    cr_expect_str_eq(lapse_path_name(LAPSE_PATH_COUNT), "?");
}
