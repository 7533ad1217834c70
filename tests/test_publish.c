/* SPDX-License-Identifier: BSD-3-Clause */
/* Releases that no hook sees; and INLINE, which is told within them. */
#include "shim/lapse.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "shim/release.h"
#include "tests/unit.h"

TestSuite(publish, .init = unit_start);

#define END ((uintptr_t)1 << 47)

Test(publish, refuses_what_is_no_user_memory)
{
    static const struct {
        uintptr_t addr;
        size_t len;
    } bad[] = {{0, 1},   {4096, 0},       {4096, SIZE_MAX},
               {END, 1}, {END - 1, 2},    {(uintptr_t)-1, 1},
               {4096, END - 4095}};
    lapse_handle h = unit_poller(LAPSE_ALL);
    lapse_release r;

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        void *p = (void *)bad[i].addr;

        cr_expect_eq(lapse_publish(p, bad[i].len), -EINVAL, "%zu", i);
        cr_expect_eq(lapse_publish_begin(p, bad[i].len, &r), -EINVAL);
        cr_expect_eq(lapse_publish_end(&r), -EINVAL, "it never began");
    }
    cr_expect_eq(lapse_publish_begin(unit_at(0), 1, NULL), -EINVAL);
    cr_expect_eq(lapse_publish_end(NULL), -EINVAL);
    memset(&r, 0, sizeof(r));
    cr_expect_eq(lapse_publish_end(&r), -EINVAL);
    cr_expect(!lapse_pending(h));
    cr_expect_eq(lapse_publish((void *)(END - 1), 1), 0);
    cr_expect_eq(lapse_publish((void *)4096, END - 4096), 0);
}

Test(publish, ends_once)
{
    lapse_release r;

    cr_assert_eq(lapse_publish_begin(unit_at(0), 1, &r), 0);
    cr_assert_eq(lapse_publish_end(&r), 0);
    cr_assert_eq(lapse_publish_end(&r), -EINVAL);
}

static unsigned open_ones(lapse_handle h)
{
    struct lapse_event e[16];
    int n = lapse_poll(h, e, 16);
    unsigned open = 0;

    for (int i = 0; i < n; i++)
        open += e[i].flags & LAPSE_EVENT_OPEN;
    return open;
}

Test(publish, nests)
{
    lapse_handle h = unit_poller(LAPSE_ALL);
    lapse_release r[3];

    for (int i = 0; i < 3; i++) {
        lapse_publish_begin(unit_at(i), 1, &r[i]);
        cr_assert_eq(open_ones(h), i + 1);
    }
    lapse_publish(unit_at(9), 1); /* within them: over at once */
    cr_assert_eq(open_ones(h), 3);
    for (int i = 2; i >= 0; i--) {
        lapse_publish_end(&r[i]);
        cr_assert_eq(open_ones(h), i);
    }
    cr_assert(!lapse_pending(h));
}

Test(publish, is_filtered_by_page)
{
    lapse_handle h = unit_poller(0);
    struct lapse_event e;

    lapse_watch(h, unit_at(1), 1);
    lapse_publish(unit_at(0), UNIT_PAGE);
    lapse_publish(unit_at(2), UNIT_PAGE);
    cr_expect(!lapse_pending(h));
    /* the same page, though not the same bytes: at least once, never less */
    lapse_publish((char *)unit_at(1) + 100, 8);
    cr_assert_eq(lapse_poll(h, &e, 1), 1);
    cr_expect_eq(e.addr, (uintptr_t)unit_at(1) + 100, "exact");
    cr_expect_eq(e.len, 8);
}

static struct lapse_event told[4];
static int calls;

static void note(const struct lapse_event *event, void *arg)
{
    cr_assert_eq(arg, &calls);
    told[calls++ & 3] = *event;
}

Test(publish, calls_inline_before_and_after)
{
    lapse_handle h = unit_subscribe(LAPSE_INLINE, LAPSE_ALL, note, &calls);
    lapse_release r;

    cr_assert_eq(lapse_publish_begin(unit_at(3), UNIT_PAGE, &r), 0);
    cr_assert_eq(calls, 1);
    cr_expect_eq(told[0].flags, LAPSE_EVENT_OPEN);
    cr_assert_eq(lapse_publish_end(&r), 0);
    cr_assert_eq(calls, 2);
    cr_expect_eq(told[1].flags, 0);
    cr_expect_eq(told[1].addr, (uintptr_t)unit_at(3));
    cr_expect_eq(told[1].len, UNIT_PAGE);
    cr_expect_eq(told[1].reason, LAPSE_REASON_USER);
    cr_expect_eq(told[1].seq, told[0].seq);
    cr_expect(!lapse_pending(h));
    cr_expect_eq(lapse_sync(h), 0);
    lapse_publish(unit_at(3), 1);
    cr_assert_eq(calls, 4);
    cr_expect_gt(told[2].seq, told[1].seq);
    lapse_unsubscribe(h);
    lapse_publish(unit_at(3), 1);
    cr_assert_eq(calls, 4);
}

/* lapse.h: a USER event says the bytes exactly. Both times. */
Test(publish, tells_inline_exact_bytes_twice)
{
    unit_subscribe(LAPSE_INLINE, LAPSE_ALL, note, &calls);
    lapse_publish((char *)unit_at(3) + 100, 8);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(told[i].addr, (uintptr_t)unit_at(3) + 100, "call %d", i);
        cr_expect_eq(told[i].len, 8, "call %d", i);
    }
}

/* Page 0 is memory as any other to who may map it. */
Test(publish, calls_inline_twice_for_page_0)
{
    unit_subscribe(LAPSE_INLINE, LAPSE_ALL, note, &calls);
    lapse_publish((void *)8, 8);
    cr_assert_eq(calls, 2);
}

Test(publish, open_page_0_meets_a_watch)
{
    lapse_handle h = unit_poller(0);
    struct unit_opener o;

    unit_open(&o, (void *)8, 8);
    lapse_watch(h, (void *)8, 8);
    cr_expect(lapse_pending(h));
    unit_close(&o);
}

Test(publish, does_not_call_inline_for_what_it_does_not_watch)
{
    lapse_handle h = unit_subscribe(LAPSE_INLINE, 0, note, &calls);

    lapse_watch(h, unit_at(1), 1);
    lapse_publish(unit_at(2), 1);
    cr_assert_eq(calls, 0);
    lapse_publish(unit_at(1), 1);
    cr_assert_eq(calls, 2);
}

static void subscribe_leaves(const struct lapse_event *event, void *arg)
{
    (void)event;
    ++*(int *)arg;
}

/* Begun while subscribed, ended when nobody is there any more. */
Test(publish, inline_may_leave_in_between)
{
    lapse_handle h =
        unit_subscribe(LAPSE_INLINE, LAPSE_ALL, subscribe_leaves, &calls);
    lapse_release r;

    lapse_publish_begin(unit_at(0), 1, &r);
    lapse_unsubscribe(h);
    lapse_publish_end(&r);
    cr_assert_eq(calls, 1);
}

/* Without a slot there is no place to remember: OVERFLOW at the end. */
Test(publish, tells_inline_without_a_slot)
{
    static lapse_release r[1025];
    lapse_handle h;

    for (int i = 0; i < 1024; i++)
        lapse_publish_begin(unit_at(i), 1, &r[i]);
    h = unit_subscribe(LAPSE_INLINE, 0, note, &calls);
    lapse_watch(h, unit_at(5000), 1);
    lapse_publish_begin(unit_at(5000), 1, &r[1024]);
    cr_expect_eq(calls, 1);
    cr_expect_eq(told[0].flags, LAPSE_EVENT_OPEN);
    lapse_publish_end(&r[1024]);
    cr_expect_eq(calls, 2);
    cr_expect_eq(told[1].reason, LAPSE_REASON_OVERFLOW);
    cr_expect_eq(told[1].len, SIZE_MAX);
    cr_expect(!lapse_pending(h), "an INLINE one has nothing to fetch");
}

/* A signal handler that publishes in the middle of a hook, and ends after it;
 * and no slot is left for it. */
Test(publish, without_a_slot_across_the_end_of_a_hook)
{
    static struct release full[IN_FLIGHT_SLOTS - 1];
    struct release hook;
    lapse_release late;

    for (int i = 0; i < IN_FLIGHT_SLOTS - 1; i++) {
        release_claim(&full[i], RANGE_NOTHING);
        release_leave(&full[i]);
    }
    release_claim(&hook, RANGE_NOTHING);
    cr_assert_not_null(hook.slot);
    cr_assert_eq(lapse_publish_begin(unit_at(0), 1, &late), 0);
    release_end(&hook);
    cr_assert_eq(lapse_hint.depth, 0);
    cr_assert_eq(lapse_publish_end(&late), 0);
    cr_expect_eq(lapse_hint.depth, 0, "outside of everything: %u",
                 lapse_hint.depth);
}
