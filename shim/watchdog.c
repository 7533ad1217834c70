/* SPDX-License-Identifier: BSD-3-Clause */
#include "watchdog.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "lapse.h"
#include "lock.h"
#include "log.h"
#include "release.h"

#define CALLS 128

static struct call calls[CALLS];

static _Atomic uint32_t alive; /* there is a thread, or one is being made */
static _Atomic uint32_t wakes; /* futex: changes when it is to look at once */

/* For the thread alone: what it saw of each slot. */
static struct {
    uint32_t serial, since, reported;
} seen[CALLS];
static uint32_t looks;

struct call *watchdog_enter(enum call_kind kind, uint32_t subscriber,
                            uintptr_t function)
{
    uintptr_t self = thread_self();

    for (unsigned i = 0; i < CALLS; i++) {
        struct call *c = &calls[(self / 4096 + i) % CALLS];
        uintptr_t none = 0;

        /* acquire Y1: pairs with Y2 of who had it before */
        if (!atomic_compare_exchange_strong_explicit(&c->owner, &none, self,
                                                     memory_order_acquire,
                                                     memory_order_relaxed))
            continue;
        /* relaxed: read by who sees the serial of Y3 before and after */
        atomic_store_explicit(&c->tid, (uint32_t)sys(SYS_gettid),
                              memory_order_relaxed);
        atomic_store_explicit(&c->kind, kind, memory_order_relaxed);
        atomic_store_explicit(&c->subscriber, subscriber,
                              memory_order_relaxed);
        atomic_store_explicit(&c->function, function, memory_order_relaxed);
        /* release Y3: pairs with Y4 */
        atomic_fetch_add_explicit(&c->serial, 1, memory_order_release);
        return c;
    }
    return NULL;
}

void watchdog_leave(struct call *c)
{
    atomic_fetch_add_explicit(&c->serial, 1, memory_order_release);
    /* release Y2: pairs with Y1 */
    atomic_store_explicit(&c->owner, 0, memory_order_release);
}

static const char *kind_name(uint32_t kind)
{
    static const char *const names[] = {
        [CALL_CALLBACK] = "the callback",
        [CALL_POLL] = "lapse_poll",
        [CALL_SYNC] = "lapse_sync",
        [CALL_DRAIN] = "lapse_drain",
        [CALL_UNSUBSCRIBE] = "lapse_unsubscribe",
    };

    return names[kind % (sizeof(names) / sizeof(*names))];
}

static void report(const struct call *c, uint32_t tid)
{
    uint32_t kind = atomic_load_explicit(&c->kind, memory_order_relaxed);
    uint32_t subscriber =
        atomic_load_explicit(&c->subscriber, memory_order_relaxed);
    uintptr_t function =
        atomic_load_explicit(&c->function, memory_order_relaxed);

    if (kind == CALL_CALLBACK)
        log_warn("watchdog: %s %p of subscriber %u has not come back for %u "
                 "s, in thread %u",
                 kind_name(kind), (void *)function, subscriber,
                 lapse_config.watchdog, tid);
    else if (kind == CALL_DRAIN)
        log_warn("watchdog: %s has not come back for %u s, in thread %u",
                 kind_name(kind), lapse_config.watchdog, tid);
    else
        log_warn("watchdog: %s of subscriber %u has not come back for %u s, "
                 "in thread %u",
                 kind_name(kind), subscriber, lapse_config.watchdog, tid);
}

/* Is this call due to be reported? *any: some call is in progress. */
static bool is_due(unsigned i, bool *any)
{
    /* acquire Y4: pairs with Y3 */
    uint32_t serial =
        atomic_load_explicit(&calls[i].serial, memory_order_acquire);

    if (!(serial & 1))
        return false;
    *any = true;
    if (seen[i].serial != serial) {
        seen[i].serial = serial;
        seen[i].since = looks;
        return false;
    }
    if (seen[i].reported == serial ||
        looks - seen[i].since < lapse_config.watchdog)
        return false;
    seen[i].reported = serial;
    return true;
}

static void add_thread(uint32_t *tids, unsigned *n, uint32_t tid)
{
    for (unsigned i = 0; i < *n; i++)
        if (tids[i] == tid)
            return;
    if (*n < WATCHDOG_THREADS)
        tids[(*n)++] = tid;
}

/* Returns whether any call is in progress. */
static bool look(void)
{
    uint32_t tids[WATCHDOG_THREADS];
    unsigned n = 0;
    bool any = false;

    for (unsigned i = 0; i < CALLS; i++) {
        uint32_t tid;

        if (!is_due(i, &any))
            continue;
        tid = atomic_load_explicit(&calls[i].tid, memory_order_relaxed);
        report(&calls[i], tid);
        add_thread(tids, &n, tid);
    }
    if (n && watchdog_stacks(tids, n))
        log_warn("watchdog: no stacks, or not all; to see them: lapse stacks "
                 "--thread %u %d",
                 tids[0], (int)sys(SYS_getpid));
    return any;
}

static bool anybody(void)
{
    /* seq_cst Y5: after "no thread" was said, as in may_leave() */
    return atomic_load_explicit(&lapse_live, memory_order_seq_cst) != 0;
}

/* Says "no thread", then looks once more: who subscribes sets lapse_live, and
 * then looks whether there is one. One of the two sees the other (Y5, Y6). */
static bool may_leave(void)
{
    uint32_t none = 0;

    if (anybody())
        return false;
    atomic_store_explicit(&alive, 0, memory_order_seq_cst);
    return !anybody() || !atomic_compare_exchange_strong_explicit(
                             &alive, &none, 1, memory_order_seq_cst,
                             memory_order_relaxed);
}

static void *watchdog_main(void *unused)
{
    static const struct timespec second = {.tv_sec = 1};
    bool any = false;

    sys(SYS_prctl, PR_SET_NAME, "lapse-watchdog");
    for (unsigned i = 0; i < CALLS; i++)
        seen[i].serial = seen[i].reported = 0;
    for (;;) {
        uint32_t was = atomic_load_explicit(&wakes, memory_order_acquire);

        if (!any && may_leave())
            return unused;
        if (sys(SYS_futex, &wakes, FUTEX_WAIT_PRIVATE, was, &second) ==
            -ETIMEDOUT)
            looks++;
        any = look();
    }
}

void watchdog_start(void)
{
    static const struct lapse_thread thread = {.start = watchdog_main};
    uint32_t none = 0;

    if (!anybody())
        return;
    /* seq_cst Y6: see may_leave() */
    if (atomic_load_explicit(&alive, memory_order_seq_cst) ||
        !atomic_compare_exchange_strong_explicit(&alive, &none, 1,
                                                 memory_order_seq_cst,
                                                 memory_order_relaxed))
        return;
    if (lapse_thread_start(&thread, NULL)) {
        lapse_config.watchdog = 0;
        log_warn("LAPSE_WATCHDOG: no thread can be made; nothing is watched");
    }
}

void watchdog_wake(void)
{
    if (!lapse_config.watchdog || anybody())
        return;
    /* release: with the acquire in watchdog_main */
    atomic_fetch_add_explicit(&wakes, 1, memory_order_release);
    futex_wake(&wakes, 1);
}

/* Other threads' calls are not here. Ours may go on: we may be in a callback,
 * and have another number now. */
void watchdog_fork_child(void)
{
    if (!lapse_config.watchdog)
        return;
    atomic_store_explicit(&alive, 0, memory_order_relaxed);
    for (unsigned i = 0; i < CALLS; i++) {
        struct call *c = &calls[i];
        uint32_t serial =
            atomic_load_explicit(&c->serial, memory_order_relaxed);

        if (atomic_load_explicit(&c->owner, memory_order_relaxed) ==
            thread_self()) {
            atomic_store_explicit(&c->tid, (uint32_t)sys(SYS_gettid),
                                  memory_order_relaxed);
            continue;
        }
        atomic_store_explicit(&c->serial, serial + (serial & 1),
                              memory_order_relaxed);
        atomic_store_explicit(&c->owner, 0, memory_order_relaxed);
    }
}
