/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who releases: an allocator, the loader, other code of libc, or the program.
 * Asked in reporting mode only. The answer comes from return addresses on the
 * stack, compared with the text of libc's malloc, of libraries that export
 * malloc, and of ld.so. Exact for the direct caller; for brk, which malloc
 * reaches through sbrk, the next words of the stack are searched for a return
 * address into the allocator, which a stale word could imitate.
 */
#ifndef LAPSE_CALLER_H
#define LAPSE_CALLER_H

#include <stdbool.h>
#include <stdint.h>

#include "hooks/caller_ranges.h"
#include "shim/release.h"

/* Learn where the loader is; inside: what caller_inside() asks, too, which
 * takes its time. Takes the loader's lock: from the constructor only. */
void caller_start(bool inside);

/* stack: as in hook.h. *pc gets the return address. */
enum inside caller_inside(const uintptr_t *stack, unsigned path,
                          uintptr_t *pc);

/* Is the direct caller ld.so (dlclose, dlopen)? Cheap; in any mode. */
static inline int caller_is_loader(const uintptr_t *stack, unsigned path)
{
    return in_text(&caller_ranges.loader, stack[caller_ranges.frame[path]]);
}

#endif
