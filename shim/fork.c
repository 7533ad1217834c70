/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fork: our locks are taken before it, so that the child finds the structures
 * whole, and given back after it on both sides. They are held for microseconds
 * and never while other code runs, so this cannot hang; if a signal handler
 * forks while it interrupts their owner, they are the forking thread's and
 * stay so. Hooks of other threads are cut off anywhere: see inflight.c and
 * poll_fork_child for what that leaves behind.
 * vfork and posix_spawn share memory: nothing is to be done.
 */
#include "fork.h"

#include <pthread.h>

#include "backstop.h"
#include "drain.h"
#include "inflight.h"
#include "report.h"
#include "subscriber.h"

/* Which of them this fork took; written with the registry held. */
static bool took[SUBSCRIBERS_MAX + 1];

static void before(void)
{
    bool first = !lock_take(&lapse_subscribers.registry);

    for (unsigned i = 0; i < SUBSCRIBERS_MAX; i++)
        took[i] = !lock_take(&lapse_subscribers.one[i].lock);
    took[SUBSCRIBERS_MAX] = first;
}

static void give_back(void)
{
    bool first = took[SUBSCRIBERS_MAX];

    for (unsigned i = 0; i < SUBSCRIBERS_MAX; i++)
        if (took[i])
            lock_drop(&lapse_subscribers.one[i].lock);
    if (first)
        lock_drop(&lapse_subscribers.registry);
}

static void in_child(void)
{
    report_fork_child();
    atomic_store_explicit(&lapse_subscribers.registry.waiters, 0,
                          memory_order_relaxed);
    in_flight_fork_child();
    for (unsigned i = 0; i < SUBSCRIBERS_MAX; i++)
        subscriber_fork_child(&lapse_subscribers.one[i]);
    drainer_fork_child();
    if (lapse_backstop)
        lapse_backstop->fork_child();
    give_back();
}

/* What pthread_atfork() calls in glibc; weak, for the loader of another C
 * library to go on (hooks/start.c). */
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void),
                             void *) __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

void fork_start(void)
{
    __register_atfork(before, give_back, in_child, __dso_handle);
}
