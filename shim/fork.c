/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fork: our locks are taken before it, so that the child finds the structures
 * whole, and given back after it on both sides. They are held for microseconds
 * and never while other code runs, so this cannot hang; if a signal handler
 * forks while it interrupts their owner, they are the forking thread's and
 * stay so. Hooks of other threads are cut off anywhere: see inflight.c and
 * poll_fork_child for what that leaves behind.
 * In a child that is one already, but not by fork() (fork.h), a lock may be
 * taken for ever, by a thread that is not there. It is not waited for, and what
 * it guards may be half changed: the child's own child is as good as its
 * parent then, no better.
 * vfork and posix_spawn share memory: nothing is to be done.
 */
#include "fork.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "backstop.h"
#include "drain.h"
#include "inflight.h"
#include "report.h"
#include "subscriber.h"
#include "thread.h"
#include "trace.h"
#include "watchdog.h"

/* Which of them this fork took; written with the registry held. */
static bool took[SUBSCRIBERS_MAX + 1];
/* One of them was taken for ever. */
static bool stuck;

_Atomic uint32_t *_Atomic lapse_fork_mark;

static void set_mark(void)
{
    _Atomic uint32_t *at =
        atomic_load_explicit(&lapse_fork_mark, memory_order_relaxed);

    if (at)
        atomic_store_explicit(at, 1, memory_order_relaxed);
}

bool fork_mark(void)
{
    long at;

    if (atomic_load_explicit(&lapse_fork_mark, memory_order_relaxed))
        return true;
    at = sys(SYS_mmap, 0, PAGE_SIZE, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at < 0 && at > -4096)
        return false;
    if (sys(SYS_madvise, at, PAGE_SIZE, MADV_WIPEONFORK)) {
        sys(SYS_munmap, at, PAGE_SIZE);
        return false;
    }
    *(_Atomic uint32_t *)at = 1;
    /* release K1: the 1, for fork_was_raw() of other threads */
    atomic_store_explicit(&lapse_fork_mark, (_Atomic uint32_t *)at,
                          memory_order_release);
    return true;
}

static bool take(struct lock *l, bool raw)
{
    if (!raw)
        return !lock_take(l);
    if (lock_try(l))
        return true;
    /* relaxed: nobody else is here */
    if (atomic_load_explicit(&l->owner, memory_order_relaxed) !=
        thread_self())
        stuck = true;
    return false;
}

static void before(void)
{
    bool raw = fork_was_raw();
    bool first = take(&lapse_subscribers.registry, raw);

    for (unsigned i = 0; i < SUBSCRIBERS_MAX; i++)
        took[i] = take(&lapse_subscribers.one[i].lock, raw);
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
    if (stuck) {
        give_back();
        return;
    }
    trace_fork_child(); /* until set_mark() no trace is written */
    set_mark();
    report_fork_child();
    thread_fork_child();
    atomic_store_explicit(&lapse_subscribers.registry.waiters, 0,
                          memory_order_relaxed);
    in_flight_fork_child();
    for (unsigned i = 0; i < SUBSCRIBERS_MAX; i++)
        subscriber_fork_child(&lapse_subscribers.one[i]);
    drainer_fork_child();
    watchdog_fork_child();
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
