/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * S-uring of the cases: a cache of io_uring fixed buffers that follows the
 * protocol in lapse.h. A fixed buffer is pinned: what WRITE_FIXED writes are
 * the pages that were there when it was registered, and that is what makes a
 * stale registration show.
 */
#ifndef CASE_URING_H
#define CASE_URING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lapse.h"

#define CACHE_LEN_MAX (8ul << 20) /* of one buffer */

/* Delivery is LAPSE_POLL or LAPSE_CALLBACK; exits with 77 without io_uring. */
void cache_start(uint32_t delivery);
void cache_stop(void);

/* Callbacks take the buffer out themselves, rather than the next lookup. */
void cache_unpin_at_once(bool yes);

/* Drains, then the fixed buffer of that range, registered anew if dead. */
int cache_lookup(void *p, size_t len);

/*
 * Looks up and writes the buffer to a file: how many of its pages came out
 * other than they are in memory.
 */
size_t cache_stale(void *p, size_t len);

extern unsigned long cache_hits, cache_misses;

/*
 * S-log: what was told since cache_forget(). True if every page of the range
 * is in some event, and no event has anything outside of it, page-rounded.
 */
void cache_forget(void);
bool cache_covered(const void *p, size_t len);
unsigned cache_told(void);

#endif
