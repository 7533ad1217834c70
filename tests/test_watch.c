/* SPDX-License-Identifier: BSD-3-Clause */
/* lapse_watch, lapse_unwatch, and a watch that meets a release. */
#include "shim/meet.h"

#include <errno.h>

#include "shim/range.h"
#include "tests/unit.h"

TestSuite(watch, .init = unit_start);

static const struct {
    const char *what;
    uintptr_t addr;
    size_t len;
} bad[] = {
    {"NULL", 0, 1},
    {"length 0", 0x10000, 0},
    {"wraps", 0x10000, SIZE_MAX},
    {"wraps to just 0", 0x10000, SIZE_MAX - 0x10000 + 1},
    {"the last byte of user space and one more", USER_END - 1, 2},
    {"beyond user space", USER_END, 1},
    {"the kernel's", (uintptr_t)-4096, 4096},
};

Test(watch, refuses_what_is_no_user_memory)
{
    lapse_handle h = unit_poller(0);

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        void *p = (void *)bad[i].addr;

        cr_expect_eq(lapse_watch(h, p, bad[i].len), -EINVAL, "%s",
                     bad[i].what);
        cr_expect_eq(lapse_unwatch(h, p, bad[i].len), -EINVAL, "%s",
                     bad[i].what);
    }
    cr_expect_eq(lapse_watch(h, (void *)(USER_END - 1), 1), 0);
}

static bool told_of(lapse_handle h, size_t page)
{
    struct lapse_event e;
    bool told;

    lapse_publish(unit_at(page), UNIT_PAGE);
    told = lapse_pending(h);
    while (lapse_poll(h, &e, 1) > 0)
        ;
    return told;
}

Test(watch, is_rounded_outward)
{
    lapse_handle h = unit_poller(0);

    lapse_watch(h, (char *)unit_at(5) + UNIT_PAGE - 1, 2);
    cr_expect(!told_of(h, 4));
    cr_expect(told_of(h, 5));
    cr_expect(told_of(h, 6));
    cr_expect(!told_of(h, 7));
}

Test(watch, is_counted)
{
    lapse_handle h = unit_poller(0);

    lapse_watch(h, unit_at(0), 2 * UNIT_PAGE);
    lapse_watch(h, unit_at(1), 2 * UNIT_PAGE);
    cr_expect_eq(lapse_unwatch(h, unit_at(0), 3 * UNIT_PAGE), 0);
    cr_expect(!told_of(h, 0));
    cr_expect(told_of(h, 1), "watched twice");
    cr_expect(!told_of(h, 2));
    cr_expect_eq(lapse_unwatch(h, unit_at(0), 2 * UNIT_PAGE), -ENOENT);
    cr_expect(told_of(h, 1), "nothing changed");
    cr_expect_eq(lapse_unwatch(h, unit_at(1), 1), 0);
    cr_expect(!told_of(h, 1));
}

Test(watch, is_of_one_subscriber)
{
    lapse_handle a = unit_poller(0), b = unit_poller(0);

    lapse_watch(a, unit_at(0), 1);
    cr_expect_eq(lapse_unwatch(b, unit_at(0), 1), -ENOENT);
    lapse_publish(unit_at(0), 1);
    cr_expect(lapse_pending(a));
    cr_expect(!lapse_pending(b));
}

/* A signal handler that interrupted this thread under the lock. */
Test(watch, refuses_to_wait_for_itself)
{
    lapse_handle h = unit_poller(0);
    struct subscriber *s = &lapse_subscribers.one[h.index];
    struct lapse_event e;

    lock_take(&s->lock);
    cr_expect_eq(lapse_watch(h, unit_at(0), 1), -EDEADLK);
    cr_expect_eq(lapse_unwatch(h, unit_at(0), 1), -EDEADLK);
    cr_expect_eq(lapse_poll(h, &e, 1), -EDEADLK);
    lock_drop(&s->lock);
    cr_expect_eq(lapse_watch(h, unit_at(0), 1), 0);
}

/* G2: the release looked at the filter before, so the watch itself tells. */
Test(watch, meets_a_release_in_flight)
{
    lapse_handle h = unit_poller(0);
    struct unit_opener o;
    struct lapse_event e[4];
    uint64_t seq;

    unit_open(&o, unit_at(0), 4 * UNIT_PAGE);
    cr_assert(!lapse_pending(h));
    cr_assert_eq(lapse_watch(h, unit_at(2), 8 * UNIT_PAGE), 0);
    cr_assert(lapse_pending(h), "at once");
    cr_assert_eq(lapse_poll(h, e, 4), 1);
    cr_assert_eq(e[0].addr, (uintptr_t)unit_at(2));
    cr_assert_eq(e[0].len, 2 * UNIT_PAGE, "what is both");
    cr_assert_eq(e[0].flags, LAPSE_EVENT_OPEN);
    cr_assert_eq(e[0].reason, LAPSE_REASON_USER);
    seq = e[0].seq;
    cr_assert_geq(seq, 1);
    cr_assert(lapse_pending(h), "as long as it is open");
    unit_close(&o);
    cr_assert(lapse_pending(h));
    cr_assert_eq(lapse_poll(h, e, 4), 1);
    cr_assert_eq(e[0].flags, 0, "once more, closed");
    cr_assert_eq(e[0].seq, seq);
    cr_assert(!lapse_pending(h));
    cr_assert_eq(lapse_poll(h, e, 4), 0);
}

Test(watch, meets_only_what_overlaps)
{
    lapse_handle h = unit_poller(0);
    struct unit_opener o;

    unit_open(&o, unit_at(4), 4 * UNIT_PAGE);
    lapse_watch(h, unit_at(0), 4 * UNIT_PAGE);
    lapse_watch(h, unit_at(8), 4 * UNIT_PAGE);
    cr_expect(!lapse_pending(h));
    lapse_watch(h, unit_at(7), 1);
    cr_expect(lapse_pending(h));
    unit_close(&o);
}

Test(watch, everything_meets_a_release_in_flight)
{
    struct unit_opener o;
    struct lapse_event e;
    lapse_handle h;

    unit_open(&o, unit_at(4), UNIT_PAGE);
    h = unit_poller(LAPSE_ALL);
    cr_expect(lapse_pending(h));
    cr_expect_eq(lapse_poll(h, &e, 1), 1);
    cr_expect_eq(e.addr, (uintptr_t)unit_at(4));
    cr_expect_eq(e.flags, LAPSE_EVENT_OPEN);
    unit_close(&o);
}

static struct lapse_event last;
static _Atomic int calls;

static void note(const struct lapse_event *event, void *unused)
{
    (void)unused;
    last = *event;
    calls++;
}

Test(watch, meets_a_release_for_an_inline_handler)
{
    lapse_handle h = unit_subscribe(LAPSE_INLINE, 0, note, NULL);
    struct unit_opener o;

    unit_open(&o, unit_at(0), UNIT_PAGE);
    lapse_watch(h, unit_at(0), 1);
    cr_expect_eq(calls, 0);
    unit_close(&o);
    cr_expect_eq(calls, 1, "at its end");
    cr_expect_eq(last.addr, (uintptr_t)unit_at(0));
    cr_expect_eq(last.flags, 0);
    cr_expect_geq(last.seq, 1, "numbers begin with 1");
}

/* More in flight than the table holds: nothing is known, so all may be. */
Test(watch, meets_a_release_without_a_slot)
{
    static lapse_release r[1025];
    lapse_handle h = unit_poller(0);
    struct lapse_event e;

    for (int i = 0; i < 1025; i++)
        lapse_publish_begin(unit_at(i), 1, &r[i]);
    while (lapse_poll(h, &e, 1) > 0)
        ;
    lapse_watch(h, unit_at(5000), 1);
    cr_expect(lapse_pending(h));
    cr_expect_eq(lapse_poll(h, &e, 1), 1);
    cr_expect_eq(e.reason, LAPSE_REASON_OVERFLOW);
    for (int i = 0; i < 1025; i++)
        lapse_publish_end(&r[i]);
    cr_expect_eq(lapse_poll(h, &e, 1), 1, "once more");
    cr_expect_eq(lapse_poll(h, &e, 1), 0);
    cr_expect(!lapse_pending(h));
}

Test(watch, watched_asks_every_subscriber)
{
    lapse_handle a = unit_poller(0), b = unit_poller(0);

    cr_expect_eq(lapse_watched(NULL, 1), -EINVAL);
    cr_expect_eq(lapse_watched(unit_at(0), 0), -EINVAL);
    cr_expect_eq(lapse_watched(unit_at(0), 1), 0);
    lapse_watch(a, unit_at(0), 1);
    lapse_watch(b, unit_at(5), 1);
    cr_expect_eq(lapse_watched(unit_at(0), 1), 1);
    cr_expect_eq(lapse_watched(unit_at(1), 1), 0, "between the two");
    cr_expect_eq(lapse_watched(unit_at(5), 1), 1);
    cr_expect_eq(lapse_watched(unit_at(1), 5 * PAGE_SIZE), 1);
    lapse_unsubscribe(b);
    cr_expect_eq(lapse_watched(unit_at(5), 1), 0);
}
