/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for the filter's nodes: by kind, mapped in blocks, zeroed when
 * handed out, never unmapped and never used for another kind or level (a hook
 * may look at a node late). Called under a subscriber's lock; nobody waits.
 */
#ifndef LAPSE_SLAB_H
#define LAPSE_SLAB_H

#include <stdint.h>

#include "lock.h"

#define SLAB_SHELVES 64 /* as many as subscribers */

/* The first four are nodes of that level. */
enum slab_kind { SLAB_LEAF, SLAB_EXTRA = 4, SLAB_KINDS };

/* Zeroed; NULL when there is no memory. */
void *slab_take(enum slab_kind kind);
/* Must be all zero again, but for the last word. */
void slab_give(enum slab_kind kind, void *p);
uint64_t slab_bytes(void); /* handed out now; AS-safe */

#endif
