/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LAPSE_SNAPSHOT_H
#define LAPSE_SNAPSHOT_H

#include <stddef.h>

#include "shim/trace_file.h"

/* Room for a stack of at most max bytes is at `to`. Returns the bytes used, a
 * multiple of 8, sizeof(struct trace_stack) included; 0: lost. */
size_t snapshot_take(struct trace_stack *to, size_t max);

#endif
