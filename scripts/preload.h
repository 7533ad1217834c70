/* SPDX-License-Identifier: BSD-3-Clause */
/* The library that a command gets preloaded, and the environment for that. */
#ifndef PRELOAD_H
#define PRELOAD_H

#include <limits.h>
#include <stdbool.h>

/*
 * The absolute path of liblapse: what LAPSE_LIBRARY says, else beside this
 * program (a build tree) or in ../lib (installed). Returns 0, or the exit
 * status when there is none, which was said.
 */
int preload_find(char library[PATH_MAX]);

enum { PRELOAD_VARIABLES = 3 };
struct preload_environment {
    char **all;                    /* for exec; others' strings are borrowed */
    char *ours[PRELOAD_VARIABLES]; /* those of `all` that are ours */
};

/*
 * Our environment, but for the variables that preload the library and name
 * the directory for reports (NULL: none); `asan` for a program that wants to know better
 * than we which library comes first. False without memory; free it anyway.
 */
bool preload_environment_make(struct preload_environment *environment,
                              const char *library, const char *dir, bool asan);
void preload_environment_free(struct preload_environment *environment);

#endif
