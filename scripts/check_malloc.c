/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows: what an allocator gives back by itself. Written so that glibc does;
 * another allocator may keep the memory, or give it back by another way.
 */
#include "check_malloc.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check_memory.h"

enum {
    LARGE = 1 << 20,
    MEDIUM = 100 * 1024, /* below the threshold at which glibc maps */
    BLOCKS = 8,
    MANY = 400
};

/* Whole pages inside the block; writing them makes them be there. */
static bool watch_inside(struct scene *s, char *block, size_t size)
{
    uintptr_t at = (uintptr_t)block + size / 2 - CHECK_BYTES / 2;

    if (!block)
        return cannot(s, "malloc");
    memset(block, 1, size);
    s->block = block;
    s->size = size;
    s->addr = (char *)(at & -(uintptr_t)PAGE_BYTES);
    return true;
}

bool free_setup(struct scene *s)
{
    return watch_inside(s, malloc(LARGE), LARGE);
}

bool free_release(struct scene *s)
{
    free(s->block);
    return true;
}

bool aligned_setup(struct scene *s)
{
    return watch_inside(s, aligned_alloc(1 << 16, LARGE), LARGE);
}

/* Grown by so much that it moves; the other block stands in the way. */
bool realloc_release(struct scene *s)
{
    s->other = malloc(LARGE);
    return done(s, realloc(s->block, 64 * LARGE), "realloc");
}

bool realloc_shrink_setup(struct scene *s)
{
    if (!free_setup(s))
        return false;
    s->addr += LARGE / 4;
    return true;
}

bool realloc_shrink_release(struct scene *s)
{
    return done(s, realloc(s->block, LARGE / 8), "realloc");
}

/* The last block of many, at the top of the heap. */
bool heap_top_setup(struct scene *s)
{
    char *block[BLOCKS];

    for (int i = 0; i < BLOCKS; i++)
        block[i] = malloc(MEDIUM);
    s->other = block[BLOCKS - 2];
    return s->other && watch_inside(s, block[BLOCKS - 1], MEDIUM);
}

bool heap_top_release(struct scene *s)
{
    free(s->other);
    free(s->block);
    return true;
}

/* A hole in the heap, which goes only when it is asked for. */
bool malloc_trim_setup(struct scene *s)
{
    s->other = malloc(MEDIUM);
    if (!watch_inside(s, malloc(MEDIUM), MEDIUM))
        return false;
    return done(s, malloc(MEDIUM), "malloc");
}

bool malloc_trim_release(struct scene *s)
{
    free(s->block);
    malloc_trim(0);
    return true;
}

/* So many that any allocator gives some back, the watched one perhaps too. */
static char *many[MANY];

bool many_setup(struct scene *s)
{
    for (int i = 0; i < MANY; i++) {
        many[i] = malloc(2 * MEDIUM);
        if (!many[i])
            return cannot(s, "malloc");
        memset(many[i], 1, 2 * MEDIUM);
    }
    return watch_inside(s, many[MANY / 2], 2 * MEDIUM);
}

bool many_release(struct scene *s)
{
    int (*trim)(const char *, void *, size_t *, void *, size_t) =
        check_symbol("mallctl");
    void (*collect)(bool) = check_symbol("mi_collect");
    void (*release)(void) = check_symbol("MallocExtension_ReleaseFreeMemory");
    int (*command)(int, void *) = check_symbol("scalable_allocation_command");

    (void)s;
    for (int i = 0; i < MANY; i++)
        free(many[i]);
    /* Each has a name of its own for "give it all back". */
    if (trim) {
        trim("thread.tcache.flush", NULL, NULL, NULL, 0);
        trim("arena.4096.purge", NULL, NULL, NULL, 0); /* of all arenas */
    }
    if (collect)
        collect(true);
    if (release)
        release();
    if (command)
        command(0, NULL); /* TBBMALLOC_CLEAN_ALL_BUFFERS */
    malloc_trim(0);
    return true;
}

/* FREE is by the byte, and says nothing of pages. */
bool free_exact_setup(struct scene *s)
{
    size_t size = CHECK_BYTES + PAGE_BYTES;

    if (!watch_inside(s, malloc(size), size))
        return false;
    s->addr = (char *)(((uintptr_t)s->block + PAGE_BYTES - 1) &
                       -(uintptr_t)PAGE_BYTES);
    release_names(s, s->block, size);
    s->size = malloc_usable_size(s->block);
    return true;
}
