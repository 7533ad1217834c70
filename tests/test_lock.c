/* SPDX-License-Identifier: BSD-3-Clause */
#include "shim/lock.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>

#define THREADS 4
#define ROUNDS 20000

static struct lock lock;
static long counter; /* plain: only the lock keeps it right */

static void *count(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        if (lock_take(&lock))
            abort();
        counter++;
        lock_drop(&lock);
    }
    return NULL;
}

Test(lock, excludes)
{
    pthread_t t[THREADS];

    for (int i = 0; i < THREADS; i++)
        pthread_create(&t[i], NULL, count, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    cr_assert_eq(counter, (long)THREADS * ROUNDS);
    cr_assert_eq(lock.waiters, 0);
    cr_assert_eq(lock.owner, 0);
}

Test(lock, refuses_its_owner)
{
    cr_assert(!lock_mine(&lock));
    cr_assert_eq(lock_take(&lock), 0);
    cr_assert(lock_mine(&lock));
    cr_assert_eq(lock_take(&lock), -EDEADLK);
    cr_assert(lock_mine(&lock), "still held after the refusal");
    lock_drop(&lock);
    cr_assert(!lock_mine(&lock));
    cr_assert_eq(lock_take(&lock), 0);
    lock_drop(&lock);
}

static void *take_once(void *mine)
{
    *(_Bool *)mine = lock_mine(&lock);
    lock_take(&lock);
    counter = 1;
    lock_drop(&lock);
    return NULL;
}

Test(lock, wakes_a_sleeper)
{
    pthread_t t;
    _Bool mine = 1;

    lock_take(&lock);
    pthread_create(&t, NULL, take_once, &mine);
    while (!lock.waiters)
        sched_yield();
    cr_assert_eq(counter, 0, "went past a lock that is held");
    lock_drop(&lock);
    pthread_join(t, NULL);
    cr_assert_eq(counter, 1);
    cr_assert(!mine, "a lock that another holds is not mine");
}

Test(lock, tries_without_waiting)
{
    cr_assert(lock_try(&lock));
    cr_assert(lock_mine(&lock));
    cr_assert(!lock_try(&lock), "its own, too");
    lock_drop(&lock);
    cr_assert(lock_try(&lock));
    lock_drop(&lock);
}
