/* SPDX-License-Identifier: BSD-3-Clause */
/* The trace's record of a release, with the stack if that is wanted. */
#ifndef LAPSE_TRACE_RELEASE_H
#define LAPSE_TRACE_RELEASE_H

#include "release.h"
#include "trace.h"

/*
 * Copies registers and stack: room for at most max bytes is at `to`. Returns
 * the bytes used, a multiple of 8, sizeof(struct trace_stack) included; 0: it
 * cannot be copied. Given by hooks/, before the first site is patched; NULL:
 * no stacks are wanted.
 */
extern size_t (*lapse_snapshot)(struct trace_stack *to, size_t max)
    __attribute__((visibility("hidden")));

/* end 0: how much is not known. pc: a return address into who called. */
void trace_release(const struct release *r, uintptr_t start, uintptr_t end,
                   unsigned path, enum inside inside, uintptr_t pc);

#endif
