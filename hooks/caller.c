/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of caller.h that runs in hooks. */
#include "caller.h"

#define BRK_WORDS 24 /* more than the frames of brk, sbrk and morecore take */

struct caller_ranges caller_ranges;

static int in_allocator(uintptr_t pc)
{
    for (unsigned i = 0; i < caller_ranges.allocators; i++)
        if (in_text(&caller_ranges.allocator[i], pc))
            return 1;
    return 0;
}

/* Is there a call in front of pc? pc is in text that is known to be mapped. */
static int follows_call(uintptr_t pc)
{
    const unsigned char *p = (const unsigned char *)pc;

    return p[-5] == 0xe8 || (p[-2] == 0xff && (p[-1] & 0x38) == 0x10) ||
           (p[-6] == 0xff && p[-5] == 0x15) ||
           (p[-3] == 0xff && (p[-2] & 0x38) == 0x10);
}

enum inside caller_inside(const uintptr_t *stack, unsigned path,
                          uintptr_t *pc)
{
    uintptr_t from = stack[caller_ranges.frame[path]];

    *pc = from;
    if (in_allocator(from))
        return INSIDE_ALLOCATOR;
    if (in_text(&caller_ranges.loader, from))
        return INSIDE_LOADER;
    if (!in_text(&caller_ranges.libc, from))
        return INSIDE_NOTHING;
    for (unsigned i = 1; path == LAPSE_PATH_BRK && i < BRK_WORDS; i++)
        if (in_allocator(stack[i]) && follows_call(stack[i]))
            return INSIDE_ALLOCATOR;
    return INSIDE_LIBC;
}
