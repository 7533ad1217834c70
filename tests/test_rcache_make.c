/* SPDX-License-Identifier: BSD-3-Clause */
/* A miss of the cache: what the registrar is asked for, and how often. */
#include "tests/rcache_unit.h"

#include <limits.h>

TestSuite(rcache_make, .init = unit_start, .timeout = 60);

Test(rcache_make, errors_of_the_registrar_go_to_the_caller)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);

    books.fail = 1;
    books.error = -EFAULT;
    cr_expect_eq(touch(c, unit_at(1), 1), -EFAULT);
    cr_expect_eq(books.asked, 1);
    cr_expect_eq(touch(c, unit_at(1), 1), 0);
    books.fail = 1;
    books.error = -ENOMEM; /* nothing left to evict but page 1 */
    cr_expect_eq(touch(c, unit_at(3), 1), 0);
    cr_expect_eq(books.deregistered, 1);
    books.fail = 10;
    books.error = -EAGAIN;
    cr_expect_eq(touch(c, unit_at(5), 1), -EAGAIN);
    cr_expect_eq(stats_of(c).regions, 0);
    books.fail = 0;
    destroy(c);
}

Test(rcache_make, makes_room_in_a_small_device)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);

    books.room = 8;
    for (size_t i = 0; i < 1000; i++)
        cr_assert_eq(touch(c, unit_at(2 * (i % 50)), 1), 0);
    cr_expect_eq(books.wrong, 0);
    destroy(c);
}

Test(rcache_make, overlapping_ones_go_where_the_device_wants_no_overlap)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);

    touch(c, unit_at(1), PAGES(4));
    books.fail = 1;
    books.error = -EEXIST;
    cr_expect_eq(touch(c, unit_at(3), PAGES(4)), 0);
    cr_expect_eq(books.deregistered, 1);
    destroy(c);
}

Test(rcache_make, one_in_use_stays_where_the_device_wants_no_overlap)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);
    lapse_region *held = got(c, 1, 4, 1);

    touch(c, unit_at(4), PAGES(2)); /* before that one, in the list of a page */
    books.fail = 2;
    books.error = -EEXIST;
    cr_expect_eq(touch(c, unit_at(3), PAGES(4)), -EEXIST);
    cr_expect_eq(stats_of(c).evicted, 1);
    cr_expect_eq(books.deregistered, 1, "what was not in use went");
    lapse_rcache_put(c, got(c, 1, 4, 1));
    cr_expect_eq(books.registered, 2, "what was is there still");
    lapse_rcache_put(c, held);
    books.fail = 1;
    cr_expect_eq(touch(c, unit_at(3), PAGES(4)), 0);
    cr_expect_eq(books.deregistered, 2);
    destroy(c);
}

static _Atomic int deregistering;

static void slowly_deregister(void)
{
    deregistering = 1;
    unit_sleep_ms(20);
}

static void *flush_main(void *unused)
{
    (void)unused;
    lapse_rcache_flush(books.cache);
    return NULL;
}

Test(rcache_make, waits_for_room_that_another_thread_is_making)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);
    lapse_region *held;
    pthread_t t;

    books.room = 1;
    touch(c, unit_at(1), 1);
    books.before_deregister = slowly_deregister;
    pthread_create(&t, NULL, flush_main, NULL);
    cr_assert_eq(unit_await(&deregistering, 1), 1);
    held = got(c, 3, 1, 1); /* there is nothing to evict, but room soon */
    pthread_join(t, NULL);
    cr_expect_eq(touch(c, unit_at(5), 1), -ENOMEM, "none to be waited for");
    lapse_rcache_put(c, held);
    destroy(c);
}

Test(rcache_make, rounds_to_huge_pages_where_it_can)
{
    lapse_rcache *c = books_cache(
        &books, (struct lapse_rcache_limits){.align = PAGES(512),
                                             .idle_ms = LAPSE_RCACHE_NO_TICK});

    touch(c, unit_at(520), 1);
    touch(c, unit_at(1000), 1);
    cr_expect_eq(books.asked, 1);
    books.fail = 1;
    books.error = -EFAULT; /* the huge page is not all there */
    cr_expect_eq(touch(c, unit_at(2000), 1), 0);
    cr_expect_eq(stats_of(c).bytes, PAGES(512) + PAGES(1));
    lapse_publish(unit_at(2001), UNIT_PAGE); /* not watched any more */
    lapse_rcache_progress(c);
    cr_expect_eq(stats_of(c).invalidated, 0);
    destroy(c);
}

Test(rcache_make, merges_neighbours)
{
    lapse_rcache *c = books_cache(
        &books, (struct lapse_rcache_limits){.merge_bytes = PAGES(8),
                                             .idle_ms = LAPSE_RCACHE_NO_TICK});
    lapse_region *held = got(c, 10, 2, 1);

    touch(c, unit_at(12), PAGES(2));
    cr_expect_eq(stats_of(c).regions, 1);
    cr_expect_eq(stats_of(c).bytes, PAGES(4));
    cr_expect_eq(books.deregistered, 0, "held");
    lapse_rcache_put(c, held);
    cr_expect_eq(books.deregistered, 1);
    touch(c, unit_at(9), 1);
    cr_expect_eq(stats_of(c).bytes, PAGES(5));
    lapse_rcache_put(c, got(c, 14, 1, 2));
    cr_expect_eq(stats_of(c).regions, 2, "other rights are not merged");
    touch(c, unit_at(14), PAGES(5));
    cr_expect_eq(stats_of(c).regions, 3, "too large together");
    cr_expect_eq(stats_of(c).merged, 2);
    destroy(c);
}

/* A page's list has the one that was made last first. */
Test(rcache_make, merges_neighbours_behind_those_of_other_rights)
{
    lapse_rcache *c = books_cache(
        &books, (struct lapse_rcache_limits){.merge_bytes = PAGES(8),
                                             .idle_ms = LAPSE_RCACHE_NO_TICK});

    touch(c, unit_at(10), 1);
    lapse_rcache_put(c, got(c, 10, 1, 2));
    touch(c, unit_at(11), 1);
    cr_expect_eq(stats_of(c).merged, 1);
    cr_expect_eq(stats_of(c).regions, 2);
    cr_expect_eq(stats_of(c).bytes, PAGES(3));
    lapse_region *r = got(c, 10, 2, 1);
    cr_expect_eq(books.registered, 3, "one registration has both pages");
    lapse_rcache_put(c, r);
    destroy(c);
}

static void release_some(struct books *b, void *addr, size_t len)
{
    (void)len;
    if (b->asked < 4)
        lapse_publish(addr, 1);
}

Test(rcache_make, a_registration_that_meets_a_release_is_made_again)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);

    books.meanwhile = release_some;
    cr_expect_eq(touch(c, unit_at(1), 1), 0);
    cr_expect_eq(books.asked, 4);
    cr_expect_eq(books.deregistered, 3);
    cr_expect_eq(stats_of(c).retried, 3);
    destroy(c);
}

Test(rcache_make, while_a_release_is_open_nothing_is_cached)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);
    struct unit_opener o;

    touch(c, unit_at(1), 1);
    unit_open(&o, unit_at(1), UNIT_PAGE);
    cr_expect_eq(touch(c, unit_at(1), 1), -EAGAIN);
    cr_expect_eq(touch(c, unit_at(9), 1), 0, "other memory");
    unit_close(&o);
    cr_expect_eq(touch(c, unit_at(1), 1), 0);
    destroy(c);
}

static void get_it_myself(struct books *b, void *addr, size_t len)
{
    lapse_region *r;

    *(int *)b->arg = lapse_rcache_get(b->cache, addr, len, 1, &r);
    b->meanwhile = NULL;
}

Test(rcache_make, a_registrar_may_use_the_cache_but_not_wait_for_itself)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);
    int err = 0;

    books.meanwhile = get_it_myself;
    books.arg = &err;
    cr_expect_eq(touch(c, unit_at(1), 1), 0);
    cr_expect_eq(err, -EDEADLK);
    destroy(c);
}

static void touch_another(void)
{
    if (books.deregistered < books.error)
        touch(books.cache, unit_at(30 + (size_t)books.deregistered), 1);
}

Test(rcache_make, what_is_got_by_deregistering_goes_with_the_cache)
{
    lapse_rcache *c = books_cache(&books, (struct lapse_rcache_limits){0});

    books.before_deregister = touch_another;
    books.error = 3;
    touch(c, unit_at(1), 1);
    destroy(c);
    cr_expect_eq(books.registered, 4);
    /* Each time: said, not forgotten. */
    c = books_cache(&books, NO_TICK);
    books.error = INT_MAX;
    touch(c, unit_at(1), 1);
    cr_expect_eq(lapse_rcache_destroy(c), -EBUSY);
    books.before_deregister = NULL;
    destroy(c);
}

static void slowly(struct books *b, void *addr, size_t len)
{
    (void)b, (void)addr, (void)len;
    unit_sleep_ms(30);
}

static void *touch_main(void *unused)
{
    (void)unused;
    cr_expect_eq(touch(books.cache, unit_at(1), PAGES(2)), 0);
    return NULL;
}

Test(rcache_make, threads_that_miss_at_once_register_once)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);
    pthread_t t[8];

    books.meanwhile = slowly;
    for (int i = 0; i < 8; i++)
        pthread_create(&t[i], NULL, touch_main, NULL);
    for (int i = 0; i < 8; i++)
        pthread_join(t[i], NULL);
    cr_expect_eq(books.asked, 1);
    destroy(c);
}

static const int no_room[] = {-ENOMEM, -EAGAIN, -EFAULT, -EPERM};

Test(rcache_make, rounds_to_pages_where_there_is_no_room_for_more)
{
    for (size_t i = 0; i < sizeof(no_room) / sizeof(*no_room); i++) {
        lapse_rcache *c = books_cache(
            &books,
            (struct lapse_rcache_limits){.align = PAGES(512),
                                         .idle_ms = LAPSE_RCACHE_NO_TICK});

        books.most = PAGES(1);
        books.error = no_room[i];
        cr_expect_eq(touch(c, unit_at(1000), 1), 0, "%d", no_room[i]);
        cr_expect_eq(stats_of(c).bytes, PAGES(1));
        cr_expect_eq(touch(c, unit_at(2000), PAGES(2)), no_room[i]);
        destroy(c);
    }
}

Test(rcache_make, a_release_beside_it_does_not_keep_it_from_being_made)
{
    lapse_rcache *c = books_cache(
        &books, (struct lapse_rcache_limits){.align = PAGES(512),
                                             .idle_ms = LAPSE_RCACHE_NO_TICK});
    struct unit_opener o;

    unit_open(&o, unit_at(1100), UNIT_PAGE);
    cr_expect_eq(touch(c, unit_at(1101), PAGES(1)), 0);
    unit_close(&o);
    cr_expect_eq(stats_of(c).bytes, PAGES(1));
    destroy(c);
}

static void set_errno(struct books *b, void *addr, size_t len)
{
    (void)b, (void)addr, (void)len;
    errno = EIO;
}

static void set_errno_too(void)
{
    errno = EBADF;
}

Test(rcache_make, errno_stays_whatever_the_registrar_does_to_it)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);
    lapse_region *r;

    books.meanwhile = set_errno;
    books.before_deregister = set_errno_too;
    errno = E2BIG;
    r = got(c, 1, 1, 1);
    cr_expect_eq(errno, E2BIG);
    lapse_rcache_invalidate(c, unit_at(1), 1);
    cr_expect_eq(errno, E2BIG);
    lapse_rcache_put(c, r);
    cr_expect_eq(errno, E2BIG);
    destroy(c);
}

static pthread_barrier_t both;
static int inner[2];

/* Each thread wants what the other is registering. */
static void get_the_other(struct books *b, void *addr, size_t len)
{
    size_t mine = addr == unit_at(3), other = mine ? 1 : 3;
    lapse_region *r;

    (void)len;
    pthread_barrier_wait(&both);
    inner[mine] = lapse_rcache_get(b->cache, unit_at(other), 1, 1, &r);
    if (!inner[mine])
        lapse_rcache_put(b->cache, r);
}

static void *touch_3_main(void *unused)
{
    (void)unused;
    cr_expect_eq(touch(books.cache, unit_at(3), 1), 0);
    return NULL;
}

Test(rcache_make, registrars_do_not_wait_for_each_other, .timeout = 10)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);
    pthread_t t;

    pthread_barrier_init(&both, NULL, 2);
    books.meanwhile = get_the_other;
    pthread_create(&t, NULL, touch_3_main, NULL);
    cr_expect_eq(touch(c, unit_at(1), 1), 0);
    pthread_join(t, NULL);
    cr_expect_eq(inner[0] + inner[1], -EDEADLK);
    destroy(c);
}
