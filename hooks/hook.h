/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hooks: one row per release system call. A body makes the system call
 * itself, in the middle of announcing it, and returns what the kernel did.
 */
#ifndef LAPSE_HOOK_H
#define LAPSE_HOOK_H

#include <stdint.h>

#include "shim/lapse.h"

/*
 * stack points at the word that rsp pointed at when the site was reached: for
 * most sites, the return address of the releasing libc function.
 * Runs on any thread, in any state of the process (G4).
 */
typedef long hook_body(long a0, long a1, long a2, long a3, long a4, long a5,
                       const uintptr_t *stack);

struct hook {
    const char *name; /* system call, and name of the libc function */
    int nr;           /* system call number */
    unsigned path;    /* enum lapse_path: what it counts for */
    hook_body *body;
};

/* By enum lapse_path as far as each path is one system call. */
enum {
    HOOK_FILES = LAPSE_PATH_FALLOCATE, /* from here on: change files */
    HOOK_OPEN = LAPSE_PATH_OPEN,
    HOOK_OPENAT,
    HOOK_CREAT,
    HOOK_OPENAT2,
    HOOK_COUNT
};
extern const struct hook lapse_hooks[HOOK_COUNT];

#endif
