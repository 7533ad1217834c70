/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * madvise seen by the kernel alone: it tells before it releases, and nobody
 * when it has. So the record stays open until the releasing thread has been
 * seen out of its system call (or, if it cannot be found, for HOLD_NS). For
 * the reader only: no lock, no allocation.
 */
#ifndef LAPSE_HOOKS_BACKSTOP_HOLD_H
#define LAPSE_HOOKS_BACKSTOP_HOLD_H

#include <stdbool.h>
#include <stdint.h>

#define HOLD_NS 20000000

/* Before the event is read, hence while its thread sleeps: who is it? */
void hold_look(void);

/* The event of [start, end) was read: tell, and keep it open. */
void hold_begin(uintptr_t start, uintptr_t end);

/* Close what is over. True while something is held. */
bool hold_round(void);

/* The forked child, alone: nothing is held. */
void hold_fork_child(void);

#endif
