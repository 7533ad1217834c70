/* SPDX-License-Identifier: BSD-3-Clause */
#include "pieces.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#define CHUNK_LEAST ((size_t)64 << 10)
/* After the first, chunks are huge pages, where there are any: lookups touch
 * pieces at random, and would miss the TLB more often than the cache. */
#define HUGE ((size_t)2 << 20)

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

struct pieces_chunk {
    struct pieces_chunk *next;
    size_t bytes;
    char pad[48]; /* pieces begin on a line of their own */
};

void *pieces_map(size_t bytes)
{
    int err = errno;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    errno = err;
    return p == MAP_FAILED ? NULL : p;
}

void pieces_unmap(void *p, size_t bytes)
{
    int err = errno;

    if (p)
        munmap(p, bytes);
    errno = err;
}

void pieces_init(struct pieces *s, size_t size, size_t link)
{
    *s = (struct pieces){.size = size, .link = link};
}

/* relaxed: with the lock held; atomic, since a reader without it may look */
static void *next_free(struct pieces *s, void *piece)
{
    return atomic_load_explicit((_Atomic(void *) *)((char *)piece + s->link),
                                memory_order_relaxed);
}

static void set_next_free(struct pieces *s, void *piece, void *next)
{
    atomic_store_explicit((_Atomic(void *) *)((char *)piece + s->link), next,
                          memory_order_relaxed);
}

/* Aligned to 2 MiB. */
static char *map_aligned(size_t bytes)
{
    char *p = pieces_map(bytes + HUGE);
    size_t before = -(uintptr_t)p % HUGE;

    if (!p)
        return NULL;
    if (before)
        pieces_unmap(p, before);
    pieces_unmap(p + before + bytes, HUGE - before);
    return p + before;
}

static void *want_huge(char *p, size_t bytes)
{
    int err = errno;

    if (p)
        madvise(p, bytes, MADV_HUGEPAGE);
    errno = err;
    return p;
}

void pieces_make_huge(void *p)
{
    int err = errno;

    want_huge(p, HUGE);
    madvise(p, HUGE, MADV_COLLAPSE); /* what is there; Linux 6.1 */
    errno = err;
}

void *pieces_map_large(size_t bytes)
{
    char *p = map_aligned(bytes);

    if (p)
        want_huge(p + HUGE, bytes - HUGE);
    return p;
}

void pieces_wipe_on_fork(void *p, size_t bytes)
{
    int err = errno;

    madvise(p, bytes, MADV_WIPEONFORK); /* Linux 4.14 */
    errno = err;
}

static int grow(struct pieces *s)
{
    size_t bytes = s->bytes ? HUGE : CHUNK_LEAST;
    struct pieces_chunk *chunk;

    chunk = bytes == HUGE ? want_huge(map_aligned(HUGE), HUGE)
                          : pieces_map(bytes);
    if (!chunk)
        return -ENOMEM;
    *chunk = (struct pieces_chunk){.next = s->chunks, .bytes = bytes};
    s->chunks = chunk;
    s->bytes += bytes;
    s->fresh = (char *)(chunk + 1);
    s->end = (char *)chunk + bytes;
    return 0;
}

void *pieces_take(struct pieces *s)
{
    void *p = s->free;

    if (p) {
        s->free = next_free(s, p);
        s->frees--;
        set_next_free(s, p, NULL);
        return p;
    }
    if ((size_t)(s->end - s->fresh) < s->size && grow(s))
        return NULL;
    p = s->fresh;
    s->fresh += s->size;
    return p;
}

void pieces_give(struct pieces *s, void *piece)
{
    set_next_free(s, piece, s->free);
    s->free = piece;
    s->frees++;
}

static size_t fresh(const struct pieces *s)
{
    return (size_t)(s->end - s->fresh) / s->size;
}

bool pieces_reserve(struct pieces *s, size_t n)
{
    while (s->frees + fresh(s) < n) {
        for (; fresh(s); s->fresh += s->size) /* of the chunk before */
            pieces_give(s, s->fresh);
        if (grow(s))
            return false;
    }
    return true;
}

void pieces_free(struct pieces *s)
{
    for (struct pieces_chunk *next; s->chunks; s->chunks = next) {
        next = s->chunks->next;
        pieces_unmap(s->chunks, s->chunks->bytes);
    }
}
