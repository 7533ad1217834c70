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
