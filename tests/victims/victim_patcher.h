/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef VICTIM_PATCHER_H
#define VICTIM_PATCHER_H

extern const struct lib_patcher {
    /* kind: 5, 12, 13 or 14 bytes. 0, or -1: cannot. One at a time. */
    int (*patch)(const char *name, int kind, int inlined);
    int (*unpatch)(void); /* what was there before */
    unsigned long (*count)(void); /* calls that came by */
} lib_patcher;

#endif
