/* SPDX-License-Identifier: BSD-3-Clause */
#include "backstop.h"

#include "sys.h"

const struct lapse_backstop *lapse_backstop;

/* How often the reader, which has a few steps to go, gets the processor. */
#define PATIENCE 1000

void backstop_settle(struct subscriber *s)
{
    for (unsigned i = 0; i < PATIENCE; i++) {
        /* acquire K2: pairs with K1 in hooks/backstop.c: what was published
         * before the mark went is in the queue */
        if (!(atomic_load_explicit(&s->queue.word, memory_order_acquire) &
              QUEUE_COMING))
            return;
        sys(SYS_sched_yield);
    }
    /* The reader does not get on (a debugger, a busy machine): what it has
     * not said yet may be anything. */
    s->overflow = true;
    s->overflow_told = 0;
    queue_mark(&s->queue, QUEUE_HELD, 0);
}
