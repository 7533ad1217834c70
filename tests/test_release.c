/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Releases that turn out to be none, and who wants to hear of free().
 */
#include "shim/release.h"

#include <errno.h>

#include "tests/unit.h"

static void begin(struct release *r, size_t page)
{
    uintptr_t start = (uintptr_t)unit_at(page);

    release_claim(r, RANGE_NOTHING);
    cr_assert_not_null(r->slot);
    release_publish(r, start + 16, start + 48, LAPSE_REASON_USER);
}

Test(release, voided_is_told_while_open_only, .init = unit_start)
{
    lapse_handle h = unit_poller(0);
    struct lapse_event e[4];
    struct release r;

    cr_assert_eq(lapse_watch(h, unit_at(1), 1), 0);
    begin(&r, 1);
    cr_expect_eq(lapse_poll(h, e, 4), 1);
    cr_expect(e[0].flags == LAPSE_EVENT_OPEN &&
              e[0].addr == (uintptr_t)unit_at(1) + 16 && e[0].len == 32);
    release_void(&r);
    release_end(&r);
    cr_expect_eq(lapse_poll(h, e, 4), 0);
    cr_expect_not(lapse_pending(h));

    begin(&r, 1); /* and nobody asks meanwhile */
    release_void(&r);
    release_end(&r);
    cr_expect_eq(lapse_poll(h, e, 4), 0);
    cr_expect_not(lapse_pending(h));
}

Test(release, void_is_of_one_turn_only, .init = unit_start)
{
    lapse_handle h = unit_poller(0);
    struct lapse_event e[4];
    struct release r;

    cr_assert_eq(lapse_watch(h, unit_at(1), 1), 0);
    begin(&r, 1);
    release_end(&r);
    begin(&r, 1);
    release_void(&r);
    release_end(&r);
    begin(&r, 1);
    release_end(&r);
    cr_expect_eq(lapse_poll(h, e, 4), 2);
    cr_expect(e[0].seq == 1 && e[1].seq == 3);
}

static int inline_calls;

static void on_inline(const struct lapse_event *e, void *arg)
{
    (void)e;
    (void)arg;
    inline_calls++;
}

Test(release, inline_is_called_again_unless_voided, .init = unit_start)
{
    lapse_handle h = unit_subscribe(LAPSE_INLINE, 0, on_inline, NULL);
    struct release r;

    cr_assert_eq(lapse_watch(h, unit_at(1), 1), 0);
    begin(&r, 1);
    release_end(&r);
    cr_expect_eq(inline_calls, 2);
    begin(&r, 1);
    release_void(&r);
    release_end(&r);
    cr_expect_eq(inline_calls, 3);
}

static lapse_handle free_poller(uint32_t flags)
{
    struct lapse_subscription how = {.size = sizeof(how),
                                     .flags = flags,
                                     .reasons = LAPSE_MASK(LAPSE_REASON_FREE)};
    lapse_handle h;

    cr_assert_eq(lapse_subscribe(&how, &h), 0);
    return h;
}

static bool near(size_t page)
{
    uintptr_t at = (uintptr_t)unit_at(page);

    return release_free_near(at, at + 16) &&
           at < atomic_load(&lapse_free.hull.high);
}

static bool wanted(size_t page)
{
    uintptr_t at = (uintptr_t)unit_at(page);

    return release_free_wanted(at, at + 16);
}

Test(release, free_is_not_supported_where_it_is_not_seen, .init = unit_start)
{
    struct lapse_subscription how = {.size = sizeof(how),
                                     .reasons = LAPSE_MASK(LAPSE_REASON_FREE)};
    lapse_handle h;

    cr_assert_eq(lapse_subscribe(&how, &h), -ENOTSUP);
}

Test(release, free_is_near_what_is_watched_by_who_asked, .init = unit_start)
{
    lapse_handle h, other = unit_poller(0);

    lapse_free_seen = true;
    cr_assert_eq(lapse_watch(other, unit_at(0), UNIT_PAGE), 0);
    cr_expect_not(near(0), "it did not ask");
    h = free_poller(0);
    cr_assert_eq(lapse_watch(h, unit_at(64), UNIT_PAGE), 0);
    cr_assert_eq(lapse_watch(h, unit_at(256), UNIT_PAGE), 0);
    cr_expect(near(64) && near(79) && near(256));
    cr_expect_not(near(63) || near(80) || near(128) || near(272));
    cr_expect(wanted(64) && !wanted(65) && !wanted(0));
    cr_expect(
        release_free_near((uintptr_t)unit_at(100), (uintptr_t)unit_at(140)),
        "long: not known");
    cr_assert_eq(lapse_unwatch(h, unit_at(64), UNIT_PAGE), 0);
    cr_expect_not(wanted(64));

    cr_assert_eq(lapse_unsubscribe(h), 0);
    cr_assert_eq(lapse_unsubscribe(other), 0);
    h = free_poller(0); /* from nothing: all marks are gone */
    cr_expect_not(near(64) || near(256));
    cr_assert_eq(lapse_unsubscribe(h), 0);
    h = free_poller(LAPSE_ALL);
    cr_expect(near(0) && near(1 << 20) && wanted(77));
}

Test(release, a_long_watch_marks_no_more_than_there_is, .init = unit_start)
{
    lapse_handle h;

    lapse_free_seen = true;
    h = free_poller(0);
    cr_assert_eq(lapse_watch(h, unit_at(0), (size_t)1 << 40), 0);
    cr_expect(near(0) && near(1 << 22));
}
