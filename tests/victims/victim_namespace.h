/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef VICTIM_NAMESPACE_H
#define VICTIM_NAMESPACE_H

#include <stddef.h>

/* Calls of munmap in the constructor. */
#define LIB_NAMESPACE_EARLY 37

extern const struct lib_namespace {
    void *(*get)(size_t size); /* malloc, filled */
    void (*give)(void *p);     /* free */
    int (*unmap)(void *p, size_t size);
    int (*advise)(void *p, size_t size); /* DONTNEED */
    int (*raw)(void *p, size_t size);    /* munmap by syscall() */
    int (*cut)(const char *name, int fd); /* open O_TRUNC, ftruncate */
    int (*fork)(void);
} lib_namespace;

#endif
