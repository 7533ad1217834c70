/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who meets a release in flight that cannot know of him: it has looked before
 * he came. He makes a record of it himself, for as long as it is in flight.
 * Nothing here takes a lock, allocates or waits.
 */
#ifndef LAPSE_MEET_H
#define LAPSE_MEET_H

#include <stdint.h>

#include "subscriber.h"

/* s watches [start, end) since just now: C2 of invariant I2 (inflight.h). */
void meet_in_flight(struct subscriber *s, uintptr_t start, uintptr_t end);

/*
 * A file is mapped at [start, end) since just now, where somebody watches
 * already, or everything. A release of a part of a file claims (M1), then
 * looks where the file is mapped; we map, then read the table (M2). The
 * kernel's lock orders looking and mapping, so one of the two sees the other.
 */
void meet_files(uintptr_t start, uintptr_t end);

#endif
