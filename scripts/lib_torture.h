/* SPDX-License-Identifier: BSD-3-Clause */
/* What torture rcache loads: its symbol `torture_library`. */
#ifndef LAPSE_LIB_TORTURE_H
#define LAPSE_LIB_TORTURE_H

#include <stddef.h>

#define TORTURE_LIBRARY_BYTES (256u << 10)

struct torture_library {
    char *memory; /* TORTURE_LIBRARY_BYTES of its .bss */
    int (*drop)(void *addr, size_t len); /* madvise DONTNEED, by its libc */
    void *(*get)(size_t len);            /* malloc of its libc */
    void (*give)(void *p);               /* free */
    int (*trim)(size_t pad);             /* malloc_trim */
};

#endif
