/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LAPSE_CALLER_RANGES_H
#define LAPSE_CALLER_RANGES_H

#include <stdint.h>

#include "shim/lapse.h"

#define ALLOCATORS_MAX 8

struct text_range {
    uintptr_t start, end;
};

static inline int in_text(const struct text_range *r, uintptr_t pc)
{
    return pc - r->start < r->end - r->start;
}

/* Written by caller_start before the first site is patched, then constant. */
struct caller_ranges {
    struct text_range allocator[ALLOCATORS_MAX];
    unsigned allocators;
    struct text_range loader, libc;
    /* Words between the stack pointer at the site of a path and the return
     * address of its libc function: 0 but for functions with a frame. */
    unsigned frame[LAPSE_PATH_COUNT];
};
extern struct caller_ranges caller_ranges
    __attribute__((visibility("hidden")));

#endif
