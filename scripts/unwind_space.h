/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What libunwind remembers of each process: by the address of an instruction
 * alone, of which it takes a tenth of the time to go on. A module may have gone
 * and another one come there: so it is remembered of which module it was.
 */
#ifndef UNWIND_SPACE_H
#define UNWIND_SPACE_H

#include <libunwind-x86_64.h>

#include "trace.h"

struct unwind_space {
    struct unwind_space *next;
    struct trace *trace;
    uint64_t began; /* ticks: it is this trace, not only its place */
    unw_addr_space_t space;
    struct unwind_seen {
        uint64_t pc; /* 0: free */
        const struct trace_segment *segment;
    } *seen;
    size_t count, room; /* room: a power of two, or 0 */
};

/* NULL: no memory. */
struct unwind_space *unwind_space_of(struct trace *t,
                                     unw_accessors_t *accessors);
void unwind_space_free(struct trace *t); /* NULL: of all */

/* False: at this address there was another module, all was forgotten. */
bool unwind_space_same(struct unwind_space *u, uint64_t pc,
                       const struct trace_segment *segment);

#endif
