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

/*
 * What is kept besides the counters, and only if anything is: apart, so that
 * hooks have one test and one call in the way.
 */
enum inside account_observed(struct release *r, unsigned path,
                             uintptr_t start, uintptr_t bytes,
                             const uintptr_t *stack);
void account_observed_site(struct release *r, unsigned path, uintptr_t start,
                           uintptr_t bytes, uintptr_t pc);

/* A release that another one of the same call is counted with. */
void account_noted(struct release *r, unsigned path, uintptr_t start,
                   uintptr_t end, const uintptr_t *stack);

/* How many bytes a release is counted with; 0: it is not known how many. */
static inline uintptr_t account_bytes(uintptr_t start, uintptr_t end)
{
    uintptr_t bytes = end - start;

    return bytes > USER_END / 2 ? 0 : bytes;
}

static inline void account(struct release *r, unsigned path, uintptr_t start,
                           uintptr_t end, const uintptr_t *stack)
{
    uintptr_t bytes = account_bytes(start, end);
    enum inside inside = INSIDE_NOTHING;

    if (__builtin_expect(lapse_observing, 0))
        inside = account_observed(r, path, start, bytes, stack);
    release_count(r, path, bytes, 1, inside);
}

/* In a function whose frame differs from site to site, the site itself. */
static inline void account_site(struct release *r, unsigned path,
                                uintptr_t start, uintptr_t end,
                                const uintptr_t *stack)
{
    uintptr_t bytes = account_bytes(start, end);

    if (__builtin_expect(lapse_observing, 0))
        account_observed_site(r, path, start, bytes, stack[ARCH_STACK_BACK]);
    release_count(r, path, bytes, 1, INSIDE_NOTHING);
}

#endif
