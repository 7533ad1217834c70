/* SPDX-License-Identifier: BSD-3-Clause */
#include "slab.h"

#include <stddef.h>
#include <sys/mman.h>

#include "filter.h"

#define BLOCK (256u << 10)
#define NODE_SIZE ((sizeof(struct filter_node) + 63) / 64 * 64)

static const size_t size_of[SLAB_KINDS] = {
    [SLAB_LEAF] = 128,
    [1] = NODE_SIZE,
    [2] = NODE_SIZE,
    [3] = NODE_SIZE,
    [SLAB_EXTRA] = FILTER_WAYS * sizeof(uint32_t),
};
_Static_assert(sizeof(struct filter_leaf) + sizeof(void *) <= 128,
               "a leaf and its free link share 128 bytes");

/*
 * Who gets here holds a subscriber's lock, so with as many shelves there is
 * always one that nobody is at: a thread that stops at one hinders no other
 * subscriber's watch, nor a fork. The first are used most.
 */
static struct shelf {
    struct lock lock;
    void *free[SLAB_KINDS]; /* linked by the last word of the piece */
    char *fresh, *fresh_end;
} shelves[SLAB_SHELVES];
static _Atomic uint64_t bytes;

static struct shelf *shelf_take(void)
{
    for (unsigned i = 0;; i = (i + 1) % SLAB_SHELVES)
        if (lock_try(&shelves[i].lock))
            return &shelves[i];
}

/* The last word: in a leaf it is beyond what queries read, in a node it is
 * the last child, whose bit in `any` is clear. */
static void **link_of(enum slab_kind kind, void *p)
{
    return (void **)((char *)p + size_of[kind]) - 1;
}

static void *fresh_piece(struct shelf *s, size_t size)
{
    void *p;

    if ((size_t)(s->fresh_end - s->fresh) < size) {
        long at = sys(SYS_mmap, 0, BLOCK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (at < 0 && at > -4096)
            return NULL;
        s->fresh = (char *)at;
        s->fresh_end = s->fresh + BLOCK;
    }
    p = s->fresh;
    s->fresh += size;
    return p;
}

void *slab_take(enum slab_kind kind)
{
    struct shelf *s = shelf_take();
    void *p = s->free[kind];

    if (p) {
        s->free[kind] = *link_of(kind, p);
        *link_of(kind, p) = NULL;
    } else {
        p = fresh_piece(s, size_of[kind]);
    }
    lock_drop(&s->lock);
    if (p)
        atomic_fetch_add_explicit(&bytes, size_of[kind],
                                  memory_order_relaxed);
    return p;
}

void slab_give(enum slab_kind kind, void *p)
{
    struct shelf *s = shelf_take();

    *link_of(kind, p) = s->free[kind];
    s->free[kind] = p;
    lock_drop(&s->lock);
    atomic_fetch_sub_explicit(&bytes, size_of[kind],
                              memory_order_relaxed);
}

uint64_t slab_bytes(void)
{
    return atomic_load_explicit(&bytes, memory_order_relaxed);
}
