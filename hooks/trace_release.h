/* SPDX-License-Identifier: BSD-3-Clause */
/* The trace's record of a release, with the stack if that is wanted. */
#ifndef LAPSE_TRACE_RELEASE_H
#define LAPSE_TRACE_RELEASE_H

#include "shim/release.h"
#include "shim/trace.h"

/* end 0: how much is not known. pc: a return address into who called. */
void trace_release(const struct release *r, uintptr_t start, uintptr_t end,
                   unsigned path, enum inside inside, uintptr_t pc);

#endif
