/* SPDX-License-Identifier: BSD-3-Clause */
#include "backstop.h"

#include <time.h>

#include "sys.h"

const struct lapse_backstop *lapse_backstop;

/* The reader has a few steps to go; so long it may be kept from them. */
#define PATIENCE_NS 10000000

static uint64_t now_ns(void)
{
    struct timespec t;

    sys(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool is_coming(struct subscriber *s)
{
    /* acquire K2: pairs with K1 in hooks/backstop.c: what was published before
     * the mark went is in the queue */
    return atomic_load_explicit(&s->queue.word, memory_order_acquire) &
           QUEUE_COMING;
}

void backstop_settle(struct subscriber *s)
{
    uint64_t end;

    if (!is_coming(s))
        return;
    end = now_ns() + PATIENCE_NS;
    do {
        sys(SYS_sched_yield);
        if (!is_coming(s))
            return;
    } while (now_ns() < end);
    /* The reader does not get on (a debugger, a busy machine): what it has
     * not said yet may be anything. */
    s->overflow = true;
    s->overflow_told = 0;
    queue_mark(&s->queue, QUEUE_HELD, 0);
}
