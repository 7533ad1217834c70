/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pieces of one size from memory of the cache's own: never malloc, since the
 * cache's lock is held. Type-stable: a piece that was given back is a piece of
 * the same kind the next time, and stays mapped until the cache is destroyed.
 */
#ifndef LAPSE_RCACHE_PIECES_H
#define LAPSE_RCACHE_PIECES_H

#include <stdbool.h>
#include <stddef.h>

struct pieces {
    size_t size; /* of a piece */
    size_t link; /* offset of the word that links free pieces: one that
                    readers without a lock can make no harm with */
    void *free;
    size_t frees; /* how many are linked there */
    char *fresh, *end;
    struct pieces_chunk *chunks;
    size_t bytes; /* mapped */
};

void pieces_init(struct pieces *s, size_t size, size_t link);
/* Zeroed when fresh, else as it was given back; NULL: no memory. */
void *pieces_take(struct pieces *s);
/* Let the next n be there. False: no memory for them. */
bool pieces_reserve(struct pieces *s, size_t n);
void pieces_give(struct pieces *s, void *piece);
void pieces_free(struct pieces *s);

/* Zeroed memory by mmap; reserved memory costs nothing until it is used. */
void *pieces_map(size_t bytes);
/* In huge pages, but for the first 2 MiB, if there are any. */
void *pieces_map_large(size_t bytes);
/* The first 2 MiB of such, too. */
void pieces_make_huge(void *p);
/* A forked child finds zeroes there, if the kernel can do that. */
void pieces_wipe_on_fork(void *p, size_t bytes);
void pieces_unmap(void *p, size_t bytes);

#endif
