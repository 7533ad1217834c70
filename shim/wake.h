/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The only system calls a hook adds: wake a sleeping drainer, write to an
 * eventfd that somebody waits on; each at most once per sleep.
 */
#ifndef LAPSE_WAKE_H
#define LAPSE_WAKE_H

#include "subscriber.h"

/* 1 while the drainer sleeps or is about to: a futex. */
extern _Atomic uint32_t lapse_drainer_asleep;

/* Let the drainer look around, if it sleeps. AS-safe. */
void wake_drainer(void);

/* Something was queued for s. AS-safe. */
void wake_consumer(struct subscriber *s);

#endif
