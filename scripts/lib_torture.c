/* SPDX-License-Identifier: BSD-3-Clause */
/* What torture rcache loads and unloads: memory that goes with dlclose. */
#include "torture_rcache.h"

char torture_library_memory[RCACHE_LIBRARY_MEMORY]
    __attribute__((visibility("default"), aligned(4096)));
