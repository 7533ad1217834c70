/* SPDX-License-Identifier: BSD-3-Clause */
#include "shim/pool.h"

#include <criterion/criterion.h>
#include <pthread.h>

#define SIZE 8

static struct pool pool;

static unsigned drain(struct record **out)
{
    unsigned n = 0;
    struct record *r;

    while ((r = pool_take(&pool)))
        out[n++] = r;
    return n;
}

Test(pool, hands_out_each_record_once)
{
    struct record *got[SIZE];
    unsigned seen = 0;

    cr_assert_eq(pool_open(&pool, SIZE), 0);
    cr_assert_eq(pool.high, 0);
    cr_assert_eq(drain(got), SIZE);
    for (unsigned i = 0; i < SIZE; i++)
        seen |= 1u << (pool_index(&pool, got[i]) - 1);
    cr_assert_eq(seen, (1u << SIZE) - 1);
    cr_assert_null(pool_take(&pool));
    pool_give(&pool, got[3]);
    cr_assert_eq(pool_take(&pool), got[3]);
    cr_assert_null(pool_take(&pool));
}

Test(pool, high_is_the_most_in_use_at_once)
{
    struct record *a, *b;

    pool_open(&pool, SIZE);
    for (int i = 0; i < 10; i++) {
        a = pool_take(&pool);
        b = pool_take(&pool);
        pool_give(&pool, a); /* out of order */
        pool_give(&pool, b);
    }
    cr_assert_eq(pool.high, 2);
}

Test(pool, opens_once)
{
    struct record *first;

    pool_open(&pool, SIZE);
    first = pool_take(&pool);
    cr_assert_eq(pool_open(&pool, 2 * SIZE), 0);
    cr_assert_eq(pool.size, SIZE);
    cr_assert_neq(pool_take(&pool), first, "a record in use came back");
}

Test(pool, rebuilds_what_nobody_reaches)
{
    struct record *got[SIZE];

    pool_open(&pool, SIZE);
    drain(got);
    got[2]->taken = got[5]->taken = 1;
    pool_rebuild(&pool);
    for (unsigned i = 0; i < SIZE - 2; i++) {
        struct record *r = pool_take(&pool);

        cr_assert(r && r != got[2] && r != got[5]);
    }
    cr_assert_null(pool_take(&pool));
}

Test(pool, index_and_record_agree)
{
    pool_open(&pool, SIZE);
    cr_assert_null(pool_at(&pool, 0));
    for (uint32_t i = 1; i <= SIZE; i++)
        cr_assert_eq(pool_index(&pool, pool_at(&pool, i)), i);
}

static _Atomic int users[SIZE], doubles;

static void *take_and_give(void *unused)
{
    for (int i = 0; i < 30000; i++) {
        struct record *r = pool_take(&pool), *q = pool_take(&pool);

        if (r && users[pool_index(&pool, r) - 1]++)
            doubles++;
        if (q && users[pool_index(&pool, q) - 1]++)
            doubles++;
        if (r) {
            users[pool_index(&pool, r) - 1]--;
            pool_give(&pool, r);
        }
        if (q) {
            users[pool_index(&pool, q) - 1]--;
            pool_give(&pool, q);
        }
    }
    return unused;
}

/* Pairs given back in the order they were taken: what ABA needs to bite. */
Test(pool, never_has_two_owners)
{
    pthread_t t[4];
    struct record *got[SIZE];

    pool_open(&pool, SIZE);
    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, take_and_give, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    cr_assert_eq(doubles, 0);
    cr_assert_eq(drain(got), SIZE, "records were lost");
}
