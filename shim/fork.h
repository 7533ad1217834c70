/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LAPSE_FORK_H
#define LAPSE_FORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Register what fork needs. Once, from the constructor. */
void fork_start(void);

/* Somebody subscribes, the registry being held, or a trace begins. False:
 * there is no such mark to be had. */
bool fork_mark(void);

/* On a page that the kernel empties in every child that copies memory; those
 * that fork() made set it again. NULL: not to be had, or not needed yet. */
extern _Atomic uint32_t *_Atomic lapse_fork_mark
    __attribute__((visibility("hidden")));

/*
 * Is this a child that was forked without the handlers of fork (clone() by
 * hand, _Fork())? Other threads may have held our locks then, for ever: it may
 * release memory, but the API says -ECHILD. AS-safe.
 */
static inline bool fork_was_raw(void)
{
    /* acquire K2: pairs with K1 in fork_mark() */
    _Atomic uint32_t *at =
        atomic_load_explicit(&lapse_fork_mark, memory_order_acquire);

    return at && !atomic_load_explicit(at, memory_order_relaxed);
}

#endif
