/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LAPSE_FORK_H
#define LAPSE_FORK_H

#include <stdbool.h>

/* Register what fork needs. Once, from the constructor. */
void fork_start(void);

/* Somebody subscribes; the registry is held. */
void fork_mark(void);

/*
 * Is this a child that was forked without the handlers of fork (clone() by
 * hand, _Fork())? Other threads may have held our locks then, for ever: it may
 * release memory, but the API says -ECHILD. AS-safe.
 */
bool fork_was_raw(void);

#endif
