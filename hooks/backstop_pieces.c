/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registering what the kernel does not take as a whole: ranges that begin in a
 * hole, or hold a mapping that cannot be registered (a file mapped shared and
 * read-only, another userfaultfd's, before Linux 6.7 any file's). Goes by
 * /proc/thread-self/maps. Never in a hook: it may take milliseconds.
 */
#include "hooks/backstop.h"
#include "hooks/backstop_open.h"
#include "hooks/maps.h"
#include "shim/range.h"

#define HUGE ((uintptr_t)2 << 20)

static long apply(uintptr_t start, uintptr_t end, bool on)
{
    return on ? backstop_register(start, end)
              : backstop_unregister(start, end);
}

/* One mapping. A huge page is registered whole; who watches a part of one is
 * told of the rest too, and it stays registered. */
static void take_mapping(const struct maps_line *line, uintptr_t start,
                         uintptr_t end, bool on)
{
    if (!maps_clip(line, &start, &end) || !apply(start, end, on) || !on)
        return;
    start &= ~(HUGE - 1);
    end = (end + HUGE - 1) & ~(HUGE - 1);
    if (start >= line->start && end <= line->end && !apply(start, end, true))
        return;
    backstop_cover(BACKSTOP_PARTLY);
}

uint64_t backstop_mappings(void)
{
    char text[4096];
    struct maps m;

    for (maps_open(&m, text, sizeof(text)); maps_next(&m);)
        ;
    maps_close(&m);
    return m.lines;
}

void backstop_pieces(uintptr_t start, uintptr_t end, bool on)
{
    char text[4096];
    struct maps m;

    if (!apply(start, end, on) || (!on && backstop_gone(start, end)))
        return;
    maps_open(&m, text, sizeof(text));
    while (maps_next(&m) && m.line.start < end)
        take_mapping(&m.line, start, end, on);
    maps_close(&m);
}
