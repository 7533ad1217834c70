/* SPDX-License-Identifier: BSD-3-Clause */
/* What torture rcache loads and unloads: memory that goes with dlclose, and,
   in a dlmopen, a malloc and a libc of its own. */
#include "lib_torture.h"

#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>

static char memory[TORTURE_LIBRARY_BYTES] __attribute__((aligned(4096)));

static int drop(void *addr, size_t len)
{
    return madvise(addr, len, MADV_DONTNEED);
}

extern const struct torture_library torture_library
    __attribute__((visibility("default")));
const struct torture_library torture_library = {memory, drop, malloc, free,
                                                malloc_trim};
