/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LAPSE_SNAPSHOT_H
#define LAPSE_SNAPSHOT_H

#include <stddef.h>

#include "shim/trace_file.h"

/* lapse_snapshot of shim/trace_release.h. */
size_t snapshot_take(struct trace_stack *to, size_t max);

#endif
