/* SPDX-License-Identifier: BSD-3-Clause */
/* The rows of check_malloc.c and check_threads.c. */
#ifndef CHECK_MALLOC_H
#define CHECK_MALLOC_H

#include "check.h"

bool free_setup(struct scene *s);
bool free_release(struct scene *s);
bool aligned_setup(struct scene *s);
bool realloc_release(struct scene *s);
bool realloc_shrink_setup(struct scene *s);
bool realloc_shrink_release(struct scene *s);
bool heap_top_setup(struct scene *s);
bool heap_top_release(struct scene *s);
bool malloc_trim_setup(struct scene *s);
bool malloc_trim_release(struct scene *s);
bool many_setup(struct scene *s);
bool many_release(struct scene *s);
bool free_exact_setup(struct scene *s);

bool arena_setup(struct scene *s);
bool thread_stack_setup(struct scene *s);
bool thread_big_stack_setup(struct scene *s);
bool thread_release(struct scene *s);

#endif
