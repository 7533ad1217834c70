/* SPDX-License-Identifier: BSD-3-Clause */
/* A thread that is cancelled while it is in the registrar. */
#include "tests/rcache_unit.h"

TestSuite(rcache_registrar, .init = unit_start, .timeout = 10);

static _Atomic int inside;

static void sleep_in_it(struct books *b, void *addr, size_t len)
{
    (void)b, (void)addr, (void)len;
    inside = 1;
    unit_sleep_ms(30); /* a cancellation point */
}

static void sleep_before(void)
{
    sleep_in_it(&books, NULL, 0);
}

static void *get_main(void *ended)
{
    touch(books.cache, unit_at(1), 1);
    *(bool *)ended = true;
    pthread_testcancel();
    return NULL;
}

static void *flush_main(void *ended)
{
    lapse_rcache_flush(books.cache);
    *(bool *)ended = true;
    pthread_testcancel();
    return NULL;
}

/* It is cancelled, but after it has ended what it began. */
static void cancelled(void *(*main)(void *))
{
    bool ended = false;
    void *result;
    pthread_t t;

    inside = 0;
    pthread_create(&t, NULL, main, &ended);
    while (!inside)
        unit_sleep_ms(1);
    pthread_cancel(t);
    pthread_join(t, &result);
    cr_expect_eq(result, PTHREAD_CANCELED);
    cr_expect(ended);
}

Test(rcache_registrar, a_cancelled_thread_ends_its_registration)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);

    books.meanwhile = sleep_in_it;
    cancelled(get_main);
    books.meanwhile = NULL;
    cr_expect_eq(touch(c, unit_at(1), 1), 0, "nobody waits for ever");
    cr_expect_eq(books.registered, 1);
    destroy(c);
}

Test(rcache_registrar, a_cancelled_thread_ends_its_deregistration)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);

    touch(c, unit_at(1), 1);
    books.before_deregister = sleep_before;
    cancelled(flush_main);
    books.before_deregister = NULL;
    cr_expect_eq(stats_of(c).lapsed, 0);
    destroy(c);
}
