/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counting a release, and where more is kept of it (observe.h) that: who made
 * it, and a record in the trace. After it was told, before it is done.
 */
#ifndef LAPSE_ACCOUNT_H
#define LAPSE_ACCOUNT_H

#include "hooks/arch.h"
#include "hooks/caller.h"
#include "shim/observe.h"
#include "shim/release.h"
#include "shim/trace_release.h"

static inline void observe(struct release *r, unsigned path, uintptr_t start,
                           uintptr_t end, enum inside inside, uintptr_t pc)
{
    if (observing(OBSERVE_REPORT))
        report_caller(pc, path, end - start);
    if (observing(OBSERVE_TRACE))
        trace_release(r, start, end, path, inside, pc);
}

/* A release that another one of the same call is counted with. */
static inline void note(struct release *r, unsigned path, uintptr_t start,
                        uintptr_t end, const uintptr_t *stack)
{
    uintptr_t pc = 0;

    if (__builtin_expect(observing(OBSERVE_TRACE), 0)) {
        enum inside inside = caller_inside(stack, path, &pc);

        trace_release(r, start, end, path, inside, pc);
    }
}

/* How much is not known: all, a file's worth of it. */
static inline bool account_unknown(uintptr_t start, uintptr_t end)
{
    return end - start > USER_END / 2;
}

static inline void account(struct release *r, unsigned path, uintptr_t start,
                           uintptr_t end, const uintptr_t *stack)
{
    enum inside inside = INSIDE_NOTHING;

    if (account_unknown(start, end))
        end = start;
    if (__builtin_expect(lapse_observing, 0)) {
        uintptr_t pc = 0;

        inside = caller_inside(stack, path, &pc);
        observe(r, path, start, end, inside, pc);
    }
    release_count(r, path, end - start, 1, inside);
}

/* In a function whose frame differs from site to site, the site itself. */
static inline void account_site(struct release *r, unsigned path,
                                uintptr_t start, uintptr_t end,
                                const uintptr_t *stack)
{
    if (account_unknown(start, end))
        end = start;
    if (__builtin_expect(lapse_observing, 0))
        observe(r, path, start, end, INSIDE_NOTHING, stack[ARCH_STACK_BACK]);
    release_count(r, path, end - start, 1, INSIDE_NOTHING);
}

#endif
