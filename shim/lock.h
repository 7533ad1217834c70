/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lock of ours, for consumers and for watch/unwatch; never taken by a hook.
 * Nothing is called while it is held but code of shim/ that takes no other
 * lock, save in the order registry, subscriber, slab (which nobody waits for).
 * So nobody outside can deadlock with it, and it is held for microseconds.
 * The owner is the thread pointer: it stays the same in a forked child, and
 * tells a signal handler that it interrupted the owner.
 */
#ifndef LAPSE_LOCK_H
#define LAPSE_LOCK_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

#include "sys.h"

struct lock {
    _Atomic uintptr_t owner; /* thread pointer, 0 = free; its low half is
                                the futex that waiters sleep on */
    _Atomic uint32_t waiters;
};

static inline uintptr_t thread_self(void)
{
    return (uintptr_t)__builtin_thread_pointer();
}

/* Nobody looks again who sleeps and was not woken: so twice, if it fails. */
static inline void futex_wake(const volatile void *word, int n)
{
    if (sys(SYS_futex, word, FUTEX_WAKE_PRIVATE, n) < 0)
        sys(SYS_futex, word, FUTEX_WAKE_PRIVATE, n);
}

/* Without waiting: was it free? */
static inline _Bool lock_try(struct lock *l)
{
    uintptr_t seen = 0;

    /* acquire L1: pairs with L2 in lock_drop of the last owner */
    return atomic_compare_exchange_strong_explicit(
        &l->owner, &seen, thread_self(), memory_order_acquire,
        memory_order_relaxed);
}

static inline _Bool lock_mine(struct lock *l)
{
    /* relaxed: only this thread can have written its own value */
    return atomic_load_explicit(&l->owner, memory_order_relaxed) ==
           thread_self();
}

/* How many waits this thread is in: more than one if a handler interrupted it.
 * In a forked child nobody else waits. */
extern __thread uint32_t lock_waits
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Sleep until somebody drops it, or so long; not if it is free. Returns what
 * futex() says. */
static inline long lock_wait(struct lock *l, const struct timespec *limit)
{
    uintptr_t seen = atomic_load_explicit(&l->owner, memory_order_relaxed);
    long err = 0;

    lock_waits++;
    atomic_signal_fence(memory_order_seq_cst); /* a handler may fork */
    /* seq_cst L3: ordered against L4, or a waiter could sleep unseen */
    atomic_fetch_add_explicit(&l->waiters, 1, memory_order_seq_cst);
    if (seen &&
        atomic_load_explicit(&l->owner, memory_order_seq_cst) == seen)
        err = sys(SYS_futex, &l->owner, FUTEX_WAIT_PRIVATE, (uint32_t)seen,
                  limit);
    atomic_fetch_sub_explicit(&l->waiters, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    lock_waits--;
    return err;
}

/* Returns 0, or -EDEADLK when this very thread holds it. */
static inline int lock_take(struct lock *l)
{
    while (!lock_try(l)) {
        if (lock_mine(l))
            return -EDEADLK;
        lock_wait(l, NULL);
    }
    return 0;
}

static inline void lock_drop(struct lock *l)
{
    /* seq_cst L2, L4: release for the next owner, and ordered before the
     * look at waiters (Dekker with L3) */
    atomic_store_explicit(&l->owner, 0, memory_order_seq_cst);
    if (atomic_load_explicit(&l->waiters, memory_order_seq_cst))
        futex_wake(&l->owner, 1);
}

#endif
