/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LAPSE_WATCHDOG=SECONDS: a callback, or a call of lapse_poll, lapse_sync,
 * lapse_drain or lapse_unsubscribe, that does not come back in that time is
 * reported on stderr, once, with the stacks of the threads involved.
 *
 * Whoever makes such a call claims a slot in a table and gives it back. A
 * thread that is there while anybody is subscribed, looks each second which
 * slots have not changed. It takes no lock of ours and allocates nothing:
 * what hangs may hold them all. It counts its looks, not the time: a process
 * that was stopped for a while has not hung. The stacks are read by the
 * command `lapse stacks`, a process of its own.
 */
#ifndef LAPSE_WATCHDOG_H
#define LAPSE_WATCHDOG_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "config.h"

enum call_kind {
    CALL_CALLBACK,
    CALL_POLL,
    CALL_SYNC,
    CALL_DRAIN,
    CALL_UNSUBSCRIBE
};

struct call {
    _Atomic uintptr_t owner; /* thread pointer; 0: free */
    /* Odd while in progress; another one for each call. */
    _Atomic uint32_t serial;
    _Atomic uint32_t tid, kind, subscriber;
    _Atomic uintptr_t function; /* of a callback */
} __attribute__((aligned(64)));

/* NULL when all slots are taken: the call goes unwatched. */
struct call *watchdog_enter(enum call_kind kind, uint32_t subscriber,
                            uintptr_t function);
void watchdog_leave(struct call *call);

static inline struct call *call_enter(enum call_kind kind,
                                      uint32_t subscriber,
                                      uintptr_t function)
{
    if (__builtin_expect(!lapse_config.watchdog, 1))
        return NULL;
    return watchdog_enter(kind, subscriber, function);
}

static inline void call_leave(struct call *call)
{
    if (__builtin_expect(call != NULL, 0))
        watchdog_leave(call);
}

/* Is somebody subscribed (lapse_live)? Then there is a thread, or a line says
 * why not. After subscribing, and, for forked children, at any API entry. */
void watchdog_start(void);
static inline void watchdog_need(void)
{
    if (__builtin_expect(lapse_config.watchdog, 0))
        watchdog_start();
}

/* Perhaps nobody is subscribed any more: it looks whether it may end. */
void watchdog_wake(void);
/* The forked child, alone. */
void watchdog_fork_child(void);

/* watchdog_stacks.c: where the command is; from the constructor. */
void watchdog_find_command(void);
/*
 * Run `lapse stacks` for these threads. Returns 0 when it did its work, else
 * -errno or its exit status: nothing, or not all, was shown.
 */
int watchdog_stacks(const uint32_t *tids, unsigned n);
/* The most at once. */
#define WATCHDOG_THREADS 8

#endif
