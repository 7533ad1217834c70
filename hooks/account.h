/* SPDX-License-Identifier: BSD-3-Clause */
/* Counting a release, in reporting mode with who made it. */
#ifndef LAPSE_ACCOUNT_H
#define LAPSE_ACCOUNT_H

#include "hooks/arch.h"
#include "hooks/caller.h"
#include "shim/release.h"

static inline enum inside account_caller(unsigned path, uintptr_t bytes,
                                         const uintptr_t *stack)
{
    uintptr_t pc = 0;
    enum inside inside = caller_inside(stack, path, &pc);

    report_caller(pc, path, bytes);
    return inside;
}

static inline void account(struct release *r, unsigned path, uintptr_t bytes,
                           const uintptr_t *stack)
{
    enum inside inside = INSIDE_NOTHING;

    if (bytes > USER_END / 2) /* how much is not known */
        bytes = 0;
    if (__builtin_expect(lapse_reporting, 0))
        inside = account_caller(path, bytes, stack);
    release_count(r, path, bytes, 1, inside);
}

/* In a function whose frame differs from site to site, the site itself. */
static inline void account_site(struct release *r, unsigned path,
                                uintptr_t bytes, const uintptr_t *stack)
{
    if (bytes > USER_END / 2)
        bytes = 0;
    if (__builtin_expect(lapse_reporting, 0))
        report_caller(stack[ARCH_STACK_BACK], path, bytes);
    release_count(r, path, bytes, 1, INSIDE_NOTHING);
}

#endif
