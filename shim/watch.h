/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LAPSE_WATCH_H
#define LAPSE_WATCH_H

#include "subscriber.h"

/* Tell s of every release in flight that overlaps [start, end). Its lock is
 * held. To be called after the change that makes hooks see s or its watch. */
void watch_meet_in_flight(struct subscriber *s, uintptr_t start,
                          uintptr_t end);

#endif
