/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * madvise seen by the kernel alone: it tells before it releases, and nobody
 * when it has. So the record stays open until every thread that may be the
 * releasing one has been seen out of its system call.
 *
 * From the reading of its event to its return, that thread is running, ready
 * to, or waits for the kernel's mm lock: states R and D of /proc, never S. So
 * whoever is in neither state after the reading, or is later, is done; so is
 * who spent time in user mode since. Without /proc, HOLD_NS must be enough.
 * For the reader only: no lock, no allocation.
 */
#ifndef LAPSE_HOOKS_BACKSTOP_HOLD_H
#define LAPSE_HOOKS_BACKSTOP_HOLD_H

#include <stdbool.h>
#include <stdint.h>

/* The event of [start, end) was read: tell, and keep it open. */
void hold_begin(uintptr_t start, uintptr_t end);

/* Close what is over, looking once in HOLD_TICK_NS, or now. True while
 * something is held. */
#define HOLD_TICK_NS 200000
bool hold_round(bool now);

/* The forked child, alone: nothing is held. */
void hold_fork_child(void);

#endif
