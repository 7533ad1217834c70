/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What another thread does just between two steps of this one, on purpose: in
 * rcache_test_pause(), which rcache/ calls in its narrow places.
 */
#include "tests/rcache_unit.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/rcache_buffer.h"

TestSuite(rcache_between, .init = unit_start, .timeout = 20);

void rcache_test_pause(void);

static __thread int pauses; /* until this thread lets `between` happen */
static void (*between)(void);

void rcache_test_pause(void)
{
    if (pauses && !--pauses)
        between();
}

static lapse_rcache *cache;
static pthread_t other;
static __thread bool is_other;
static _Atomic bool returned;
static sem_t began;

/* The other thread is slow to deregister. */
static void slow(void)
{
    if (!is_other)
        return;
    sem_post(&began);
    for (int i = 0; i < 1000 && !returned; i++)
        unit_sleep_ms(1);
}

static void *drop_one(void *arg)
{
    is_other = true;
    touch(cache, unit_at(100), 1);
    lapse_rcache_invalidate(cache, unit_at(100), 1);
    buffer_leave();
    return arg;
}

static void let_it_drop_one(void)
{
    pthread_create(&other, NULL, drop_one, NULL);
    while (sem_wait(&began))
        ;
}

Test(rcache_between, what_was_invalidated_is_deregistered_on_return)
{
    int done;

    books.before_deregister = slow;
    between = let_it_drop_one;
    sem_init(&began, 0, 0);
    cache = books_cache(&books, NO_TICK);
    for (size_t i = 1; i <= 3; i++)
        touch(cache, unit_at(i), 1);
    pauses = 2; /* one of the three was found to be held by nobody */
    cr_expect_eq(lapse_rcache_invalidate(cache, unit_at(1), PAGES(3)), 3);
    done = books.deregistered; /* the other is at its own, or at one of ours */
    returned = true;
    pthread_join(other, NULL);
    cr_expect_eq(done, 3, "%d of 3", done);
    destroy(cache);
}

static pid_t ended, tried;

static void *use(void *tid)
{
    *(pid_t *)tid = (pid_t)syscall(SYS_gettid);
    if (tid != &tried || tried == ended)
        touch(cache, unit_at(1), 1);
    buffer_leave();
    return NULL;
}

static bool next_tid(pid_t tid)
{
    int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY);
    bool done = fd >= 0 && dprintf(fd, "%d", tid - 1) > 0;

    if (fd >= 0)
        close(fd);
    return done;
}

/* Others on this machine may be faster. */
static void the_tid_comes_again(void)
{
    for (int i = 0; i < 1000 && tried != ended; i++) {
        next_tid(ended);
        pthread_create(&other, NULL, use, &tried);
        pthread_join(other, NULL);
    }
}

static void *use_with_a_pause(void *tid)
{
    pauses = 1;
    return use(tid);
}

/* One had made sure that it ended, one has its tid: not both its counters. */
Test(rcache_between, counters_of_a_thread_that_ended_get_one_owner)
{
    pthread_t t;
    pid_t taker;

    if (!next_tid(getpid()))
        cr_skip("cannot write /proc/sys/kernel/ns_last_pid");
    between = the_tid_comes_again;
    cache = books_cache(&books, NO_TICK);
    pthread_create(&t, NULL, use, &ended);
    pthread_join(t, NULL);
    pthread_create(&t, NULL, use_with_a_pause, &taker);
    pthread_join(t, NULL);
    cr_assert_eq(tried, ended, "the tid did not come again");
    cr_expect_eq(stats_of(cache).threads, 2);
    destroy(cache);
}
