/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Changing the filter: under the subscriber's lock, in two passes, so that
 * failure changes nothing: the first makes all room (and may fail), the second
 * moves counts and bits (and cannot). See filter.h for the invariant.
 */
#include "filter.h"

#include <errno.h>
#include <stddef.h>

#include "range.h"
#include "slab.h"

/* One child of a node, and which of its pages are meant. */
struct part {
    unsigned index;
    uint64_t first, last; /* within the child */
    bool whole;
};

static uint64_t pages_of(int level)
{
    return (uint64_t)1 << (level * FILTER_WAYS_BITS);
}

/* The i-th child, of those that first..last of this node touch. */
static struct part part_at(int level, unsigned i, uint64_t first,
                           uint64_t last)
{
    uint64_t span = pages_of(level), base = i * span;
    struct part p = {.index = i};

    p.first = first > base ? first - base : 0;
    p.last = last < base + span - 1 ? last - base : span - 1;
    p.whole = p.first == 0 && p.last == span - 1;
    return p;
}

static struct filter_leaf *child_of(struct filter_leaf *n, unsigned i)
{
    /* relaxed: written under the lock that we hold */
    return atomic_load_explicit(&((struct filter_node *)n)->child[i],
                                memory_order_relaxed);
}

static bool bit_get(_Atomic uint64_t *bits, unsigned i)
{
    return atomic_load_explicit(&bits[i / 64], memory_order_relaxed) >>
               (i % 64) &
           1;
}

/* seq_cst: F2 of invariant I2 in inflight.h */
static void bit_set(_Atomic uint64_t *bits, unsigned i)
{
    atomic_fetch_or_explicit(&bits[i / 64], (uint64_t)1 << (i % 64),
                             memory_order_seq_cst);
}

static void bit_clear(_Atomic uint64_t *bits, unsigned i)
{
    atomic_fetch_and_explicit(&bits[i / 64], ~((uint64_t)1 << (i % 64)),
                              memory_order_seq_cst);
}

static bool bits_empty(_Atomic uint64_t *bits)
{
    for (unsigned w = 0; w < FILTER_WORDS; w++)
        if (atomic_load_explicit(&bits[w], memory_order_relaxed))
            return false;
    return true;
}

static void add_one(struct filter_leaf *n, unsigned i)
{
    if (bit_get(n->full, i))
        n->extra[i]++;
    else
        bit_set(n->full, i);
}

static void take_one(struct filter_leaf *n, unsigned i)
{
    if (n->extra && n->extra[i])
        n->extra[i]--;
    else
        bit_clear(n->full, i);
}

/* Room for one more watch of the whole child i. */
static int room_for_one(struct filter_leaf *n, unsigned i)
{
    if (!bit_get(n->full, i))
        return 0;
    if (!n->extra && !(n->extra = slab_take(SLAB_EXTRA)))
        return -ENOMEM;
    return n->extra[i] == UINT32_MAX ? -EOVERFLOW : 0;
}

/* The child of index i, made if need be. level is the node's, 1 or more. */
static int room_for_child(struct filter_leaf *n, int level, unsigned i)
{
    struct filter_leaf *c = child_of(n, i);

    if (c)
        return 0;
    c = slab_take((enum slab_kind)(level - 1));
    if (!c)
        return -ENOMEM;
    /* seq_cst: part of F2, and pairs with the acquire in filter_query.c */
    atomic_store_explicit(&((struct filter_node *)n)->child[i], c,
                          memory_order_seq_cst);
    return 0;
}

static unsigned way(int level, uint64_t page)
{
    return (unsigned)(page >> (level * FILTER_WAYS_BITS));
}

static int watch_prepare(struct filter_leaf *n, int level, uint64_t first,
                         uint64_t last)
{
    int err = 0;

    for (unsigned i = way(level, first); i <= way(level, last) && !err; i++) {
        struct part p = part_at(level, i, first, last);

        if (p.whole) {
            err = room_for_one(n, i);
            continue;
        }
        err = room_for_child(n, level, i);
        if (!err)
            err = watch_prepare(child_of(n, i), level - 1, p.first, p.last);
    }
    return err;
}

/* Bits from..to of word w, both included. */
static uint64_t run_mask(unsigned w, unsigned from, unsigned to)
{
    uint64_t mask = ~(uint64_t)0;

    if (w == from / 64)
        mask &= ~(uint64_t)0 << (from % 64);
    if (w == to / 64)
        mask &= ~(uint64_t)0 >> (63 - to % 64);
    return mask;
}

/* add_one for a run of pages: one step a word, since pages are many. */
static void add_run(struct filter_leaf *n, unsigned from, unsigned to)
{
    for (unsigned w = from / 64; w <= to / 64; w++) {
        uint64_t mask = run_mask(w, from, to);
        uint64_t again = mask & atomic_fetch_or_explicit(
                                    &n->full[w], mask, memory_order_seq_cst);

        for (; again; again &= again - 1)
            n->extra[w * 64 + (unsigned)__builtin_ctzll(again)]++;
    }
}

static void take_run(struct filter_leaf *n, unsigned from, unsigned to)
{
    for (unsigned w = from / 64; w <= to / 64; w++) {
        uint64_t mask = run_mask(w, from, to), rest = n->extra ? mask : 0;

        for (; rest; rest &= rest - 1) {
            unsigned i = w * 64 + (unsigned)__builtin_ctzll(rest);

            if (n->extra[i]) {
                n->extra[i]--;
                mask &= ~((uint64_t)1 << (i % 64));
            }
        }
        atomic_fetch_and_explicit(&n->full[w], ~mask, memory_order_seq_cst);
    }
}

static void watch_commit(struct filter_leaf *n, int level, uint64_t first,
                         uint64_t last)
{
    if (!level) {
        add_run(n, (unsigned)first, (unsigned)last);
        return;
    }
    for (unsigned i = way(level, first); i <= way(level, last); i++) {
        struct part p = part_at(level, i, first, last);

        if (p.whole)
            add_one(n, i);
        else
            watch_commit(child_of(n, i), level - 1, p.first, p.last);
        /* after what is below: W1 */
        if (!bit_get(((struct filter_node *)n)->any, i))
            bit_set(((struct filter_node *)n)->any, i);
    }
}

static bool watched(struct filter_leaf *n, int level, uint64_t first,
                    uint64_t last)
{
    for (unsigned i = way(level, first); i <= way(level, last); i++) {
        struct part p = part_at(level, i, first, last);

        if (bit_get(n->full, i))
            continue;
        if (!level || !child_of(n, i) ||
            !watched(child_of(n, i), level - 1, p.first, p.last))
            return false;
    }
    return true;
}

/* Replace one watch of the whole child i by one of each of its own children:
 * the counts of pages stay as they are. */
static int push_down(struct filter_leaf *n, int level, unsigned i)
{
    struct filter_leaf *c;
    int err = room_for_child(n, level, i);

    if (err)
        return err;
    c = child_of(n, i);
    for (unsigned k = 0; k < FILTER_WAYS; k++) {
        err = room_for_one(c, k);
        if (err)
            return err;
    }
    for (unsigned k = 0; k < FILTER_WAYS; k++) {
        add_one(c, k);
        if (level > 1 && !bit_get(((struct filter_node *)c)->any, k))
            bit_set(((struct filter_node *)c)->any, k);
    }
    take_one(n, i);
    return 0;
}

static int unwatch_prepare(struct filter_leaf *n, int level, uint64_t first,
                           uint64_t last)
{
    int err = 0;

    for (unsigned i = way(level, first);
         level && i <= way(level, last) && !err; i++) {
        struct part p = part_at(level, i, first, last);
        struct filter_leaf *c = child_of(n, i);

        if (p.whole && bit_get(n->full, i))
            continue;
        if (!c || !watched(c, level - 1, p.first, p.last))
            err = push_down(n, level, i);
        if (!err)
            err = unwatch_prepare(child_of(n, i), level - 1, p.first, p.last);
    }
    return err;
}

static bool empty(struct filter_leaf *n, int level)
{
    return bits_empty(level ? ((struct filter_node *)n)->any : n->full);
}

static void give_back(struct filter_leaf *n, int level)
{
    if (n->extra) {
        /* all zero: every count went with its bit */
        slab_give(SLAB_EXTRA, n->extra);
        n->extra = NULL;
    }
    slab_give((enum slab_kind)level, n);
}

static void detach_if_empty(struct filter_leaf *n, int level, unsigned i)
{
    struct filter_node *node = (struct filter_node *)n;
    struct filter_leaf *c = child_of(n, i);

    if (c && empty(c, level - 1)) {
        if (!bit_get(n->full, i))
            bit_clear(node->any, i);
        atomic_store_explicit(&node->child[i], NULL, memory_order_release);
        give_back(c, level - 1);
    } else if (!c && !bit_get(n->full, i)) {
        bit_clear(node->any, i);
    }
}

static void unwatch_commit(struct filter_leaf *n, int level, uint64_t first,
                           uint64_t last)
{
    if (!level) {
        take_run(n, (unsigned)first, (unsigned)last);
        return;
    }
    for (unsigned i = way(level, first); i <= way(level, last); i++) {
        struct part p = part_at(level, i, first, last);

        if (p.whole && bit_get(n->full, i))
            take_one(n, i);
        else
            unwatch_commit(child_of(n, i), level - 1, p.first, p.last);
        detach_if_empty(n, level, i);
    }
}

static struct filter_leaf *root_of(struct filter *f)
{
    struct filter_node *root =
        atomic_load_explicit(&f->root, memory_order_relaxed);

    return root ? &root->leaf : NULL;
}

/* seq_cst: part of F2 */
static void widen(struct filter *f, uintptr_t start, uintptr_t end)
{
    uintptr_t high = atomic_load_explicit(&f->high, memory_order_relaxed);

    if (!high || start < atomic_load_explicit(&f->low, memory_order_relaxed))
        atomic_store_explicit(&f->low, start, memory_order_seq_cst);
    if (end > high)
        atomic_store_explicit(&f->high, end, memory_order_seq_cst);
}

int filter_watch(struct filter *f, uintptr_t start, uintptr_t end)
{
    uint64_t first = start >> PAGE_SHIFT, last = (end - 1) >> PAGE_SHIFT;
    int err;

    if (!root_of(f)) {
        struct filter_node *root = slab_take((enum slab_kind)FILTER_ROOT_LEVEL);

        if (!root)
            return -ENOMEM;
        atomic_store_explicit(&f->root, root, memory_order_seq_cst);
    }
    err = watch_prepare(root_of(f), FILTER_ROOT_LEVEL, first, last);
    if (err)
        return err;
    widen(f, start, end);
    watch_commit(root_of(f), FILTER_ROOT_LEVEL, first, last);
    return 0;
}

int filter_unwatch(struct filter *f, uintptr_t start, uintptr_t end)
{
    uint64_t first = start >> PAGE_SHIFT, last = (end - 1) >> PAGE_SHIFT;
    int err;

    if (!root_of(f) || !watched(root_of(f), FILTER_ROOT_LEVEL, first, last))
        return -ENOENT;
    /* seq_cst V3, V4: around every clearing of a bit; see filter.h */
    atomic_fetch_add_explicit(&f->removing, 1, memory_order_seq_cst);
    err = unwatch_prepare(root_of(f), FILTER_ROOT_LEVEL, first, last);
    if (!err)
        unwatch_commit(root_of(f), FILTER_ROOT_LEVEL, first, last);
    atomic_fetch_add_explicit(&f->removing, 1, memory_order_seq_cst);
    return err;
}

static void clear(struct filter_leaf *n, int level)
{
    for (unsigned i = 0; level && i < FILTER_WAYS; i++) {
        struct filter_node *node = (struct filter_node *)n;

        if (child_of(n, i))
            clear(child_of(n, i), level - 1);
        atomic_store_explicit(&node->child[i], NULL, memory_order_release);
    }
    for (unsigned i = 0; i < FILTER_WAYS; i++)
        if (n->extra)
            n->extra[i] = 0;
    for (unsigned w = 0; w < FILTER_WORDS; w++) {
        atomic_store_explicit(&n->full[w], 0, memory_order_relaxed);
        if (level)
            atomic_store_explicit(&((struct filter_node *)n)->any[w], 0,
                                  memory_order_relaxed);
    }
    give_back(n, level);
}

void filter_clear(struct filter *f)
{
    struct filter_leaf *root = root_of(f);

    atomic_store_explicit(&f->root, NULL, memory_order_seq_cst);
    atomic_store_explicit(&f->high, 0, memory_order_seq_cst);
    if (root)
        clear(root, FILTER_ROOT_LEVEL);
}
