/* SPDX-License-Identifier: BSD-3-Clause */
/* Looks at a program before it runs: can a preloaded library see inside? */
#ifndef INSPECT_H
#define INSPECT_H

#include <stdbool.h>

struct inspection {
    /*
     * NULL when it can, or nobody can tell; else why not, as the end of a
     * sentence that begins with the program's name ("is statically linked").
     */
    const char *blind;
    /* It needs AddressSanitizer's library, which wants to be loaded first. */
    bool asan;
};

/* The command is looked up in PATH as execvp() does, "#!" followed once. */
struct inspection inspect(const char *command);

#endif
