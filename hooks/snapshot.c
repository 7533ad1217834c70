/* SPDX-License-Identifier: BSD-3-Clause */
#include "hooks/snapshot.h"

size_t snapshot_take(struct trace_stack *to, size_t max)
{
    (void)to;
    (void)max;
    return 0;
}
