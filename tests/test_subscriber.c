/* SPDX-License-Identifier: BSD-3-Clause */
/* Who may subscribe, and what a handle is worth. */
#include "shim/subscriber.h"

#include <errno.h>

#include "shim/slab.h"
#include "tests/unit.h"

TestSuite(subscriber, .init = unit_start);

static void ignore(const struct lapse_event *event, void *arg)
{
    (void)event;
    (void)arg;
}

#define HOW(...) {.size = sizeof(struct lapse_subscription), __VA_ARGS__}

static const struct {
    const char *what;
    struct lapse_subscription how;
    int want;
} samples[] = {
    {"size 0", {0}, -EINVAL},
    {"short", {.size = sizeof(struct lapse_subscription) - 1}, -EINVAL},
    {"spare", HOW(.spare = 1), -EINVAL},
    {"delivery", HOW(.delivery = 3, .callback = ignore), -EINVAL},
    {"flags", HOW(.flags = 4), -EINVAL},
    {"poll with a callback", HOW(.callback = ignore), -EINVAL},
    {"callback without", HOW(.delivery = LAPSE_CALLBACK), -EINVAL},
    {"inline without", HOW(.delivery = LAPSE_INLINE), -EINVAL},
    {"reason 11", HOW(.reasons = 1u << 11), -EINVAL},
    {"reason 31", HOW(.reasons = 1u << 31), -EINVAL},
    {"free", HOW(.reasons = LAPSE_MASK(LAPSE_REASON_FREE)), -ENOTSUP},
    {"overflow", HOW(.reasons = LAPSE_MASK(LAPSE_REASON_OVERFLOW)), 0},
    {"all reasons", HOW(.reasons = LAPSE_MASK_ALL), 0},
    {"all flags", HOW(.flags = LAPSE_ALL | LAPSE_FORK_KEEP), 0},
    {"a later version", {.size = 4096}, 0},
};

Test(subscriber, checks_what_is_asked_for)
{
    lapse_handle h = {0};

    cr_expect_eq(lapse_subscribe(NULL, &h), -EINVAL);
    for (size_t i = 0; i < sizeof(samples) / sizeof(*samples); i++) {
        int got = lapse_subscribe(&samples[i].how, &h);

        cr_expect_eq(got, samples[i].want, "%s: %d", samples[i].what, got);
    }
    cr_expect_eq(lapse_subscribe(&samples[14].how, NULL), -EINVAL);
}

/* Every function that takes a handle; they leave errno alone. */
static void expect_all(const char *what, lapse_handle h, int want)
{
    struct lapse_event e;

    errno = ERANGE;
    cr_expect_eq(lapse_watch(h, unit_at(0), 1), want, "%s: watch", what);
    cr_expect_eq(lapse_unwatch(h, unit_at(0), 1), want, "%s: unwatch", what);
    cr_expect_eq(lapse_poll(h, &e, 1), want, "%s: poll", what);
    cr_expect_eq(lapse_sync(h), want, "%s: sync", what);
    cr_expect_eq(lapse_fd(h), want, "%s: fd", what);
    cr_expect_eq(lapse_unsubscribe(h), want, "%s: unsubscribe", what);
    if (want == -ESTALE || !h.word)
        cr_expect(lapse_pending(h), "%s: not pending", what);
    cr_expect_eq(errno, ERANGE, "%s: errno", what);
}

Test(subscriber, knows_what_was_never_a_handle)
{
    static const uint64_t word = 5ull << 32 | 1;
    lapse_handle good = unit_poller(0), h = good;

    expect_all("zero", (lapse_handle){0}, -EBADF);
    h.word = &word;
    expect_all("another word", h, -EBADF);
    h.word = NULL;
    cr_expect_eq(lapse_unsubscribe(h), -EBADF);
    h = good;
    h.index++;
    expect_all("another index", h, -EBADF);
    h.index = UINT32_MAX;
    expect_all("an index out of bounds", h, -EBADF);
    h = good;
    h.generation++;
    expect_all("a generation to come", h, -EBADF);
    h.generation = 0;
    expect_all("generation 0", h, -EBADF);
    h = good;
    h.index = 1;
    h.word = (const uint64_t *)&lapse_subscribers.one[1].queue.word;
    expect_all("a place that was never used", h, -EBADF);
    cr_expect_eq(lapse_unsubscribe(good), 0);
    good.generation++;
    cr_expect_eq(lapse_unsubscribe(good), -EBADF, "not handed out yet");
}

Test(subscriber, a_handle_goes_stale_and_stays_so)
{
    lapse_handle old = unit_poller(LAPSE_ALL), now;

    cr_assert(!lapse_pending(old));
    cr_assert_eq(lapse_unsubscribe(old), 0);
    expect_all("unsubscribed", old, -ESTALE);
    now = unit_poller(LAPSE_ALL);
    cr_assert_eq(now.index, old.index, "the place is used again");
    expect_all("its place used again", old, -ESTALE);
    cr_assert(!lapse_pending(now));
    cr_assert_eq(lapse_sync(now), 0, "the new one did not suffer");
    cr_assert_eq(lapse_unsubscribe(now), 0);
    expect_all("twice", old, -ESTALE);
}

Test(subscriber, generations_wrap)
{
    lapse_handle old, now;

    lapse_subscribers.one[0].queue.word = queue_idle(UINT32_MAX);
    old = unit_poller(0);
    cr_assert_eq(old.generation, UINT32_MAX);
    cr_assert_eq(lapse_unsubscribe(old), 0);
    expect_all("before the wrap", old, -ESTALE);
    now = unit_poller(0);
    cr_assert_neq(now.generation, 0);
    cr_assert_eq(lapse_watch(now, unit_at(0), 1), 0);
    expect_all("before the wrap, used again", old, -ESTALE);
}

Test(subscriber, there_are_64_and_no_more)
{
    struct lapse_subscription how = HOW(.delivery = LAPSE_POLL);
    lapse_handle h[SUBSCRIBERS_MAX], more = {0};

    for (int i = 0; i < SUBSCRIBERS_MAX; i++) {
        h[i] = unit_poller(LAPSE_ALL);
        for (int k = 0; k < i; k++)
            cr_assert_neq(h[i].index, h[k].index);
    }
    cr_assert_eq(lapse_subscribe(&how, &more), -ENOSPC);
    cr_assert_null(more.word);
    lapse_publish(unit_at(0), 1);
    for (int i = 0; i < SUBSCRIBERS_MAX; i++)
        cr_assert(lapse_pending(h[i]), "the last bits count too: %d", i);
    cr_assert_eq(lapse_unsubscribe(h[63]), 0);
    cr_assert_eq(lapse_subscribe(&how, &more), 0);
    cr_assert_eq(lapse_subscribe(&how, &more), -ENOSPC);
}

Test(subscriber, forgets_everything_at_the_end)
{
    struct lapse_event e[3];
    lapse_handle h = unit_poller(0);
    struct pool *pool = &lapse_subscribers.one[h.index].pool;
    uint64_t before = slab_bytes();
    unsigned records = 0;

    lapse_watch(h, unit_at(0), 3 << 20);
    lapse_watch(h, unit_at(0), 3 << 20);
    for (int i = 0; i < 10; i++)
        lapse_publish(unit_at(0), 1);
    cr_assert_eq(lapse_poll(h, e, 3), 3); /* some are in the backlog now */
    lapse_publish(unit_at(0), 1);
    cr_assert_eq(lapse_unsubscribe(h), 0);
    cr_assert_eq(slab_bytes(), before);
    h = unit_poller(0);
    lapse_publish(unit_at(0), 1);
    cr_assert(!lapse_pending(h), "a watch of the last one");
    while (pool_take(pool))
        records++;
    cr_assert_eq(records, UNIT_RECORDS, "records went missing");
}

Test(subscriber, wants_only_some_reasons)
{
    struct lapse_subscription how =
        HOW(.flags = LAPSE_ALL,
            .reasons = LAPSE_MASK_ALL & ~LAPSE_MASK(LAPSE_REASON_USER));
    lapse_handle h;

    cr_assert_eq(lapse_subscribe(&how, &h), 0);
    lapse_publish(unit_at(0), 1);
    cr_assert(!lapse_pending(h));
}
