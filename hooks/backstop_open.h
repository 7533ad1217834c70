/* SPDX-License-Identifier: BSD-3-Clause */
/* Getting a userfaultfd from the kernel, and saying what came of it. */
#ifndef LAPSE_HOOKS_BACKSTOP_OPEN_H
#define LAPSE_HOOKS_BACKSTOP_OPEN_H

#include <stdbool.h>
#include <stdint.h>

/* A new one, at a high number; -errno. */
long backstop_open(void);

/* Is fd a userfaultfd still, after the program may have closed it? */
bool backstop_is_ours(int fd);

/* vm.max_map_count */
uint64_t backstop_mappings_max(void);

enum backstop_extent {
    BACKSTOP_WORKS,
    BACKSTOP_PARTLY, /* some watched mapping could not be registered */
    BACKSTOP_REFUSED,
    BACKSTOP_NO_THREAD
};
/* Into the coverage table, which never says more again. Any thread, never a
 * hook. */
void backstop_cover(enum backstop_extent extent);

#endif
