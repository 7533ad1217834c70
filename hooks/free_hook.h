/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What runs when a patched deallocator is called, on a block that somebody may
 * be watching. Runs on any thread, in any state of the process (G4).
 */
#ifndef LAPSE_FREE_HOOK_H
#define LAPSE_FREE_HOOK_H

#include <stddef.h>
#include <stdint.h>

enum free_kind {
    FREE_BLOCK,    /* free(p, ...) */
    FREE_RESIZE,   /* realloc(p, size, ...) */
    FREE_IN_PLACE, /* xallocx(p, size, ...): never moves */
};

/* The size of a block that is p's, as malloc_usable_size; 0: not known. The
 * second argument is NULL: nobody else to ask. */
typedef size_t free_usable(void *p, void *other);

struct free_function {
    uintptr_t real;      /* what it did before it was patched */
    free_usable *usable; /* NULL: p has the header of a glibc chunk */
    enum free_kind kind;
};

/* The hook of a struct arch_detour, whose argument is f. */
void *free_hook(void *p, uintptr_t a, uintptr_t b, uintptr_t c,
                const struct free_function *f, const uintptr_t *stack);

#endif
