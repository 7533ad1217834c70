/* SPDX-License-Identifier: BSD-3-Clause */
/* The question that hooks ask; see filter.h. Loads of bits are seq_cst: they
 * are F1 of invariant I2 in inflight.h. */
#include "filter.h"
#include "range.h"

/* Is any of the bits from..to (both included) set? */
static bool bits_any(const _Atomic uint64_t *bits, unsigned from, unsigned to)
{
    for (unsigned w = from / 64; w <= to / 64; w++) {
        uint64_t word = atomic_load_explicit(&bits[w], memory_order_seq_cst);

        if (w == from / 64)
            word &= ~(uint64_t)0 << (from % 64);
        if (w == to / 64)
            word &= ~(uint64_t)0 >> (63 - to % 64);
        if (word)
            return true;
    }
    return false;
}

static inline bool bit_get(const _Atomic uint64_t *bits, unsigned i)
{
    return atomic_load_explicit(&bits[i / 64], memory_order_seq_cst) >>
               (i % 64) &
           1;
}

/*
 * Of the pages of this node from `page` on, or up to it (included): one node a
 * level. Children that are asked for as a whole are answered by their bits,
 * the one with the page is entered.
 */
static inline bool query_side(const struct filter_leaf *leaf, int level,
                              uint64_t page, bool from)
{
    for (; leaf; level--) {
        const struct filter_node *node = (const struct filter_node *)leaf;
        unsigned k = page >> (level * FILTER_WAYS_BITS) & (FILTER_WAYS - 1);

        /* full before any and child: W1 */
        if (bits_any(leaf->full, from ? k : 0, from ? FILTER_WAYS - 1 : k))
            return true;
        if (!level)
            return false;
        if (from ? k < FILTER_WAYS - 1 &&
                       bits_any(node->any, k + 1, FILTER_WAYS - 1)
                 : k && bits_any(node->any, 0, k - 1))
            return true;
        if (!bit_get(node->any, k))
            return false;
        leaf = atomic_load_explicit(&node->child[k], memory_order_acquire);
    }
    return false;
}

/*
 * Pages first..last (both included). Down to the node where they lie in two
 * children; below it, one side each. No recursion: G4's stack.
 */
static inline bool query(const struct filter_leaf *leaf, uint64_t first,
                         uint64_t last)
{
    for (int level = FILTER_ROOT_LEVEL; leaf; level--) {
        const struct filter_node *node = (const struct filter_node *)leaf;
        unsigned shift = (unsigned)level * FILTER_WAYS_BITS;
        unsigned i = first >> shift & (FILTER_WAYS - 1);
        unsigned j = last >> shift & (FILTER_WAYS - 1);

        /* full before any and child: W1 */
        if (bits_any(leaf->full, i, j))
            return true;
        if (!level)
            return false;
        if (i == j) {
            if (!bit_get(node->any, i))
                return false;
            leaf = atomic_load_explicit(&node->child[i],
                                        memory_order_acquire);
            continue;
        }
        return (j - i > 1 && bits_any(node->any, i + 1, j - 1)) ||
               (bit_get(node->any, i) &&
                query_side(atomic_load_explicit(&node->child[i],
                                                memory_order_acquire),
                           level - 1, first, true)) ||
               (bit_get(node->any, j) &&
                query_side(atomic_load_explicit(&node->child[j],
                                                memory_order_acquire),
                           level - 1, last, false));
    }
    return false;
}

/* The usual release: all in the span of one leaf, so one node a level. */
static inline bool query_small(const struct filter_leaf *leaf, uint64_t first,
                               uint64_t last)
{
    for (int level = FILTER_ROOT_LEVEL; level; level--) {
        unsigned i = first >> (level * FILTER_WAYS_BITS) & (FILTER_WAYS - 1);

        if (bit_get(leaf->full, i)) /* before child: W1 */
            return true;
        leaf = atomic_load_explicit(
            &((const struct filter_node *)leaf)->child[i],
            memory_order_seq_cst);
        if (!leaf)
            return false;
    }
    return bits_any(leaf->full, first & (FILTER_WAYS - 1),
                    last & (FILTER_WAYS - 1));
}

/* Was anything removed since? Then what was read is no "no". */
static inline bool removed(const struct filter *f, uint64_t before)
{
    return (before & 1) ||
           /* seq_cst V2: after all loads of bits */
           atomic_load_explicit(&f->removing, memory_order_seq_cst) != before;
}

/* Not inlined: the usual one saves no registers for it. */
__attribute__((noinline))
static bool query_large(const struct filter *f,
                        const struct filter_node *root, uint64_t first,
                        uint64_t last, uint64_t before)
{
    return query(&root->leaf, first, last) || removed(f, before);
}

bool filter_query(const struct filter *f, uintptr_t start, uintptr_t end)
{
    struct filter_node *root;
    uint64_t before;

    /* seq_cst: part of F1. Outside, no bit was set since the last clear, so
     * there is no unwatch to look out for. Most releases end here. */
    if (end <= atomic_load_explicit(&f->low, memory_order_seq_cst) ||
        start >= atomic_load_explicit(&f->high, memory_order_seq_cst))
        return false;
    /* seq_cst V1: before all loads of bits; V1, V2 pair with V3, V4 */
    before = atomic_load_explicit(&f->removing, memory_order_seq_cst);
    root = atomic_load_explicit(&f->root, memory_order_seq_cst);
    if (!root)
        return false;
    start >>= PAGE_SHIFT;
    end = (end - 1) >> PAGE_SHIFT;
    if (start >> FILTER_WAYS_BITS != end >> FILTER_WAYS_BITS)
        return query_large(f, root, start, end, before);
    return query_small(&root->leaf, start, end) || removed(f, before);
}

/* From page on: how far the bits of one leaf stay the same. */
static bool span_of_leaf(const struct filter_leaf *leaf, uint64_t page,
                         uint64_t *until)
{
    unsigned i = page & (FILTER_WAYS - 1);
    bool is = bit_get(leaf->full, i);

    while (++i < FILTER_WAYS && bit_get(leaf->full, i) == is)
        ;
    *until = (page & ~(uint64_t)(FILTER_WAYS - 1)) + i;
    return is;
}

static bool span_of_tree(const struct filter_leaf *leaf, uint64_t page,
                         uint64_t *until)
{
    for (int level = FILTER_ROOT_LEVEL; level; level--) {
        unsigned shift = (unsigned)level * FILTER_WAYS_BITS;
        unsigned i = page >> shift & (FILTER_WAYS - 1);

        *until = ((page >> shift) + 1) << shift;
        if (bit_get(leaf->full, i)) /* before child: W1 */
            return true;
        leaf = atomic_load_explicit(
            &((const struct filter_node *)leaf)->child[i],
            memory_order_seq_cst);
        if (!leaf)
            return false;
    }
    return span_of_leaf(leaf, page, until);
}

#define SPAN_TRIES 64
_Atomic uint64_t filter_unsure;

bool filter_span(const struct filter *f, uintptr_t at, uintptr_t *until)
{
    uintptr_t low = atomic_load_explicit(&f->low, memory_order_seq_cst);
    uintptr_t high = atomic_load_explicit(&f->high, memory_order_seq_cst);
    uint64_t page = at >> PAGE_SHIFT, end;

    *until = at < low && high ? low : USER_END;
    if (at < low || at >= high)
        return false;
    for (unsigned i = 0; i < SPAN_TRIES; i++) {
        /* seq_cst V1, V2: as in filter_query */
        uint64_t before =
            atomic_load_explicit(&f->removing, memory_order_seq_cst);
        struct filter_node *root =
            atomic_load_explicit(&f->root, memory_order_seq_cst);
        bool is = root && span_of_tree(&root->leaf, page, &end);

        if (!root)
            return false;
        *until = (uintptr_t)end << PAGE_SHIFT;
        if (is || (!(before & 1) &&
                   atomic_load_explicit(&f->removing,
                                        memory_order_seq_cst) == before))
            return is;
    }
    atomic_fetch_add_explicit(&filter_unsure, 1, memory_order_relaxed);
    *until = (uintptr_t)((page | (FILTER_WAYS - 1)) + 1) << PAGE_SHIFT;
    return true;
}
