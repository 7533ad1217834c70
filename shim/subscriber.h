/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is told: a fixed table, so that a hook walks it without a lock. */
#ifndef LAPSE_SUBSCRIBER_H
#define LAPSE_SUBSCRIBER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "filter.h"
#include "lapse.h"
#include "lock.h"
#include "pool.h"
#include "queue.h"

#define SUBSCRIBERS_MAX 64

enum subscriber_state {
    SUBSCRIBER_FREE = 0,
    SUBSCRIBER_LIVE,
    SUBSCRIBER_LEAVING /* unsubscribed, a callback of it still runs */
};

struct subscriber {
    /* Read by hooks: */
    struct queue queue;
    _Atomic uint32_t reasons;
    _Atomic uint8_t delivery;
    _Atomic uint8_t all;
    _Atomic(lapse_callback) callback;
    _Atomic(void *) arg;
    struct filter filter;
    struct pool pool;
    _Atomic uint32_t fd_armed; /* the eventfd wants a write at the next push */
    _Atomic int fd;            /* -1 = none */

    /* Only with `lock` held: */
    struct lock lock __attribute__((aligned(64)));
    _Atomic uint32_t state; /* subscribe and the drainer read it without */
    uint32_t flags;
    uint32_t first, last;  /* backlog, oldest first: taken and not done with */
    uint32_t cursor;       /* last record that this round has passed */
    uint32_t round;        /* from 1 */
    bool overflow;         /* OVERFLOW is to be told */
    uint32_t overflow_told; /* round in which it was */
    _Atomic uintptr_t deliverer; /* thread whose turn it is to call back */
    _Atomic uint32_t deliverer_turn; /* futex: changes when a turn ends */
    void *module; /* dlopen handle that holds the callback's module */
    uint32_t index; /* of the handle; for probes */
    bool cut; /* a fork in the middle of a function of it ended it: what it has
                 is given back when that function is over */
};

struct subscribers {
    struct subscriber one[SUBSCRIBERS_MAX];
    _Atomic uint64_t delivered;
    _Atomic uint64_t overflowed;
    _Atomic uint64_t seq;
    struct lock registry; /* subscribing, unsubscribing, the drainer's life */
};
extern struct subscribers lapse_subscribers
    __attribute__((visibility("hidden")));

/* Another copy of this library is the one in use: nobody is told here. */
extern bool subscriber_second_copy __attribute__((visibility("hidden")));

static inline uint32_t subscriber_generation(struct subscriber *s)
{
    return (uint32_t)(atomic_load_explicit(&s->queue.word,
                                           memory_order_acquire) >>
                      32);
}

/* 0, -EBADF, -ESTALE. */
int subscriber_check(lapse_handle h);

/*
 * Find the subscriber of a handle and take its lock.
 * Returns 0, -EBADF, -ESTALE, -EDEADLK (the lock is this thread's).
 */
int subscriber_lock(lapse_handle h, struct subscriber **out);

/* End a subscription whose last callback is over. Its lock is held and is
 * dropped in here; the module may be unloaded by this. */
void subscriber_finish(struct subscriber *s);

/* The forked child, alone, with all locks held. */
enum subscriber_found {
    FOUND_WHOLE,
    FOUND_BROKEN, /* another thread, which is not here, was changing it */
    FOUND_IN_USE, /* this one was, and goes on with it: a handler forked */
    FOUND_BEGUN   /* it was in lapse_subscribe() */
};
void subscriber_fork_child(struct subscriber *s, enum subscriber_found how);

#endif
