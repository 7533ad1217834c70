/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A copy of the registers and of the stack, taken in a hook, so that it can be
 * unwound elsewhere and later: an unwinder takes the loader's lock, which
 * somebody may hold who waits for a lock that the releasing thread holds.
 */
#ifndef LAPSE_SNAPSHOT_H
#define LAPSE_SNAPSHOT_H

#include <stddef.h>
#include <stdint.h>

#include "shim/trace_file.h"

/* The least room that snapshot_take() can do with. */
#define SNAPSHOT_MIN (sizeof(struct trace_stack) + 1024)

/*
 * Room for a stack of at most max bytes is at `to`. Returns the bytes used, a
 * multiple of 8, sizeof(struct trace_stack) included; 0: lost. Unwinding is to
 * begin in this function itself.
 * Runs on any thread, on any stack, in any state of the process (G4).
 * lapse_snapshot of shim/trace_release.h.
 */
size_t snapshot_take(struct trace_stack *to, size_t max);

/*
 * The stack that the kernel made for the process: something at its upper end,
 * and the thread pointer of the thread that runs on it. From the constructor,
 * if that runs in the first thread of the process: there it is looked up here,
 * while the program may still do all that it likes.
 */
void snapshot_start(uintptr_t top, uintptr_t thread);

#endif
