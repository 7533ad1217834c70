/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fork: our locks are taken before it, so that the child finds the structures
 * whole, and given back after it on both sides. They are held for microseconds
 * and never while other code runs, but for a signal handler that interrupts
 * their owner. If it forks, they are the forking thread's and stay so.
 *  F1 Such a one waits for locks in another order than the rest. So whoever
 *     else forks does not wait for his while holding what he wants, but gives
 *     all back until that fork is done.
 *  F2 Nobody waits for ever: an owner may be stopped for good, or be one that
 *     subscribes and waits for libc's locks, which fork holds. Who forks goes
 *     without after PLAIN_MS; one as in F1 after OWNER_MS, or after OWNERS_MS
 *     where there are more of them, who may want each other's; and at once in a
 *     child that is one already, but not by fork() (fork.h): the owner is not
 *     there. What another thread was changing then is forgotten in the child,
 *     where its handle is stale.
 * Signals are blocked meanwhile, in what is libc's alone: a handler that forks
 * there would give back what was taken. But not those of faults, which libc's
 * memory may be made to have. Hooks of other threads are cut off anywhere: see
 * inflight.c and poll_fork_child for what that leaves behind.
 * vfork and posix_spawn share memory: nothing is to be done.
 */
#include "fork.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "backstop.h"
#include "drain.h"
#include "inflight.h"
#include "report.h"
#include "subscriber.h"
#include "thread.h"
#include "trace.h"
#include "watchdog.h"

#define PLAIN_MS 5000
#define OWNER_MS 1000
#define OWNERS_MS 50
#define FAULTS                                                                 \
    (SIGNAL_BIT(SIGSEGV) | SIGNAL_BIT(SIGBUS) | SIGNAL_BIT(SIGILL) |           \
     SIGNAL_BIT(SIGFPE) | SIGNAL_BIT(SIGTRAP) | SIGNAL_BIT(SIGSYS))

static const struct timespec tick = {.tv_nsec = 1000000};
static _Atomic uint32_t urgent; /* forks as in F1: a futex */

/* Of a fork that is under way in this thread. */
static __thread struct {
    uint64_t took, mask;
    bool took_registry, urgent, masked;
} hold __attribute__((tls_model("initial-exec")));

__thread uint32_t lock_waits __attribute__((tls_model("initial-exec")));
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

static bool owns_any(void)
{
    bool mine = lock_mine(&lapse_subscribers.registry);

    for (unsigned i = 0; i < SUBSCRIBERS_MAX; i++)
        mine |= lock_mine(&lapse_subscribers.one[i].lock);
    return mine;
}

/* False: all must be given back (F1). */
static bool take(struct lock *l, bool *took, int *patience)
{
    *took = false;
    if (lock_mine(l))
        return true;
    while (!(*took = lock_try(l))) {
        /* relaxed: it is looked at again after a tick */
        uint32_t n = atomic_load_explicit(&urgent, memory_order_relaxed);

        if (!hold.urgent && n)
            return false;
        if (*patience <= 0)
            return true; /* F2 */
        if (lock_wait(l, &tick) == -ETIMEDOUT)
            *patience -= n > 1 ? OWNER_MS / OWNERS_MS : 1;
    }
    return true;
}

static bool take_all(int *patience)
{
    bool good, took;

    hold.took = 0;
    good = take(&lapse_subscribers.registry, &hold.took_registry, patience);
    for (unsigned i = 0; good && i < SUBSCRIBERS_MAX; i++) {
        good = take(&lapse_subscribers.one[i].lock, &took, patience);
        hold.took |= (uint64_t)took << i;
    }
    return good;
}

static void drop_all(void)
{
    for (unsigned i = 0; i < SUBSCRIBERS_MAX; i++)
        if (hold.took >> i & 1)
            lock_drop(&lapse_subscribers.one[i].lock);
    if (hold.took_registry)
        lock_drop(&lapse_subscribers.registry);
}

/* F1 until those forks are done, or this one is to be like them. */
static void wait_for_owners(int *patience)
{
    uint32_t others;

    while ((others = atomic_load_explicit(&urgent, memory_order_relaxed)) &&
           *patience > 0)
        if (sys(SYS_futex, &urgent, FUTEX_WAIT_PRIVATE, others, &tick) ==
            -ETIMEDOUT)
            --*patience;
}

/* relaxed, like all of it: it orders nothing but who waits */
static void be_urgent(void)
{
    hold.urgent = true;
    atomic_fetch_add_explicit(&urgent, 1, memory_order_relaxed);
}

static void before(void)
{
    static const uint64_t block = ~FAULTS;
    int patience = PLAIN_MS;

    /* Where nobody subscribed nothing is lost, and a sandbox may not let us
     * block signals: so nothing is taken, either. */
    if (!atomic_load_explicit(&lapse_fork_mark, memory_order_relaxed))
        return;
    sys(SYS_rt_sigprocmask, SIG_BLOCK, &block, &hold.mask, sizeof(block));
    hold.masked = true;
    if (fork_was_raw()) {
        be_urgent();
        patience = 0;
    } else if (owns_any()) {
        be_urgent();
        patience = OWNER_MS;
    }
    while (!take_all(&patience)) {
        drop_all();
        wait_for_owners(&patience);
        if (patience <= 0)
            be_urgent();
    }
}

/* Nothing is to be given back twice: the next fork may take nothing. */
static void give_back(void)
{
    bool masked = hold.masked;

    drop_all();
    if (hold.urgent)
        atomic_fetch_sub_explicit(&urgent, 1, memory_order_relaxed);
    hold.took = 0;
    hold.took_registry = hold.urgent = hold.masked = false;
    if (masked) /* a handler that forks may come from here on */
        sys(SYS_rt_sigprocmask, SIG_SETMASK, &hold.mask, 0,
            sizeof(hold.mask));
}

/* F2, in the child: whose lock this is. Says whether another thread had it.
 * Waiters are never too few: who waits here is to be woken. */
static bool seize(struct lock *l)
{
    bool others = !lock_mine(l);

    if (others)
        atomic_store_explicit(&l->owner, thread_self(), memory_order_relaxed);
    atomic_store_explicit(&l->waiters, lock_waits, memory_order_relaxed);
    return others;
}

/* What of a subscription is in the child. */
static enum subscriber_found found(struct subscriber *s, bool subscribing)
{
    uint64_t bit = (uint64_t)1 << (s - lapse_subscribers.one);
    bool others = seize(&s->lock);

    if (others || (hold.took & bit)) {
        hold.took |= bit;
        return others ? FOUND_BROKEN : FOUND_WHOLE;
    }
    return subscribing ? FOUND_BEGUN : FOUND_IN_USE;
}

static void in_child(void)
{
    bool subscribing;

    trace_fork_child(); /* until set_mark() no trace is written */
    set_mark();
    report_fork_child();
    thread_fork_child();
    hold.took_registry |= seize(&lapse_subscribers.registry);
    subscribing = !hold.took_registry;
    in_flight_fork_child();
    for (unsigned i = 0; i < SUBSCRIBERS_MAX; i++) {
        struct subscriber *s = &lapse_subscribers.one[i];

        subscriber_fork_child(s, found(s, subscribing));
    }
    drainer_fork_child();
    watchdog_fork_child();
    if (lapse_backstop)
        lapse_backstop->fork_child();
    atomic_store_explicit(&urgent, hold.urgent, memory_order_relaxed);
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
