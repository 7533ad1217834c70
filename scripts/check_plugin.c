/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library to be opened and closed by `lapse check`, which has it inside. It
 * has memory to watch, and releases memory by the libc that it sees.
 */
#include <stddef.h>
#include <sys/mman.h>

#include "check_plugin.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT char check_plugin_memory[PLUGIN_BYTES] __attribute__((aligned(4096)));

EXPORT int check_plugin_release(void *addr, size_t len)
{
    return munmap(addr, len);
}
