/* SPDX-License-Identifier: BSD-3-Clause */
#include "hooks/account.h"

static void keep(struct release *r, unsigned path, uintptr_t start,
                 uintptr_t bytes, enum inside inside, uintptr_t pc)
{
    if (observing(OBSERVE_REPORT)) {
        report_caller(pc, path, bytes);
        if (inside == INSIDE_LOADER && path == LAPSE_PATH_MUNMAP)
            report_unloaded(start, start + bytes);
    }
    if (observing(OBSERVE_TRACE))
        trace_release(r, start, start + bytes, path, inside, pc);
}

void account_observed_site(struct release *r, unsigned path, uintptr_t start,
                           uintptr_t bytes, uintptr_t pc)
{
    keep(r, path, start, bytes, INSIDE_NOTHING, pc);
}

enum inside account_observed(struct release *r, unsigned path,
                             uintptr_t start, uintptr_t bytes,
                             const uintptr_t *stack)
{
    uintptr_t pc = 0;
    enum inside inside = caller_inside(stack, path, &pc);

    keep(r, path, start, bytes, inside, pc);
    return inside;
}

void account_noted(struct release *r, unsigned path, uintptr_t start,
                   uintptr_t end, const uintptr_t *stack)
{
    uintptr_t pc = 0;
    enum inside inside = caller_inside(stack, path, &pc);

    if (observing(OBSERVE_TRACE))
        trace_release(r, start, end, path, inside, pc);
}
