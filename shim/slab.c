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

static struct {
    struct lock lock;
    void *free[SLAB_KINDS]; /* linked by the last word of the piece */
    char *fresh, *fresh_end;
    _Atomic uint64_t bytes;
} slab;

/* The last word: in a leaf it is beyond what queries read, in a node it is
 * the last child, whose bit in `any` is clear. */
static void **link_of(enum slab_kind kind, void *p)
{
    return (void **)((char *)p + size_of[kind]) - 1;
}

static void *fresh_piece(size_t size)
{
    void *p;

    if ((size_t)(slab.fresh_end - slab.fresh) < size) {
        long at = sys(SYS_mmap, 0, BLOCK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (at < 0 && at > -4096)
            return NULL;
        slab.fresh = (char *)at;
        slab.fresh_end = slab.fresh + BLOCK;
    }
    p = slab.fresh;
    slab.fresh += size;
    return p;
}

void *slab_take(enum slab_kind kind)
{
    void *p;

    if (lock_take(&slab.lock))
        return NULL;
    p = slab.free[kind];
    if (p) {
        slab.free[kind] = *link_of(kind, p);
        *link_of(kind, p) = NULL;
    } else {
        p = fresh_piece(size_of[kind]);
    }
    lock_drop(&slab.lock);
    if (p)
        atomic_fetch_add_explicit(&slab.bytes, size_of[kind],
                                  memory_order_relaxed);
    return p;
}

void slab_give(enum slab_kind kind, void *p)
{
    if (lock_take(&slab.lock))
        return; /* cannot be: nothing is interrupted under this lock; a
                   handler that gets here keeps the piece unused */
    *link_of(kind, p) = slab.free[kind];
    slab.free[kind] = p;
    lock_drop(&slab.lock);
    atomic_fetch_sub_explicit(&slab.bytes, size_of[kind],
                              memory_order_relaxed);
}

uint64_t slab_bytes(void)
{
    return atomic_load_explicit(&slab.bytes, memory_order_relaxed);
}

struct lock *slab_lock(void)
{
    return &slab.lock;
}
