/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The drainer: a thread that calls back, while anybody subscribed with a
 * callback. It holds nothing of ours while it calls, blocks all signals, and
 * is made anew in a forked child when the child next uses the library.
 */
#ifndef LAPSE_DRAIN_H
#define LAPSE_DRAIN_H

/* When somebody who wants callbacks is live, with no lock of ours held: there
 * is a drainer, or will be, when it returns 0; -EAGAIN. */
int drainer_start(void);

/* The forked child, alone. */
void drainer_fork_child(void);

/* In a child whose parent had a drainer: make one. Any API entry; cheap. */
void drainer_revive(void);

#endif
