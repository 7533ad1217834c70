/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The index: which live regions cover a page. Three levels like a page table:
 * the top has an entry per GiB, a node below it one per 2 MiB, a leaf one per
 * page. An entry has a list of the regions that cover all of it (and in the
 * upper levels do not cover all of the larger entry around it), newest first;
 * so a region sits in at most 2 * 511 entries a level, and one that covers an
 * address is found in at most three lists.
 *
 * A list is one word: 0, a link (the top bit set), or the one region, described
 * so well that a hit need not look at the region itself: its index, its rights,
 * how many pages of it are left from here on, and which 2 MiB this is.
 *
 * index_near() and index_find() run without a lock; all else with the cache's.
 * A reader may stand in a node, on a link or at a region that is taken out and
 * used again: all are type-stable (pieces.h); so nothing that a reader reaches
 * is ever unmapped, and there are no epochs. What it reads there it does not
 * believe. Invariant X3: a word in a leaf, at place k, that names the 2 MiB t,
 * says that page t * 512 + k is covered by that region, wherever the leaf came
 * from; and the word goes before the region is DEAD. A reader counts the
 * region as held (tally.h) and reads the word again. Elsewhere (links, upper
 * levels) it looks at the region, whose state has a turn. One that went astray
 * misses, and is told better under the lock.
 */
#ifndef LAPSE_RCACHE_INDEX_H
#define LAPSE_RCACHE_INDEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "region.h"
#include "pieces.h"

#define INDEX_PAGE 12
#define INDEX_BITS 9
#define INDEX_WAYS (1u << INDEX_BITS)
#define GIB_PAGES ((uint64_t)1 << 2 * INDEX_BITS)
#define LEAF_PAGES ((uint64_t)INDEX_WAYS)
#define INDEX_TOP_BITS 17 /* of 47 bits of user space */
#define INDEX_TOP (1u << INDEX_TOP_BITS)
#define INDEX_STEPS 64 /* of a list, that a lookup without a lock follows */

typedef _Atomic uint64_t index_list;

/* Bits of a region's word, from the top: 0, 2 MiB (26), index (20), 0, rights,
 * left (never 0). Of a link's: 1, 0 (8), its address from bit 8 on; so what
 * would be `left` is 0, and neither it nor an empty list covers anything. */
#define WORD_LINK ((uint64_t)1 << 63)
#define WORD_2MIB 37 /* shifts */
#define WORD_INDEX 17
#define WORD_ACCESS 8
#define WORD_ADDR 8
#define WORD_LEFT_MOST 255 /* so many, or more */

#define INDEX_MARK 4 /* shift */
#define INDEX_NEAR (1u << 16)

struct index_link {
    index_list region; /* a word for it, or 0 when it was never used */
    index_list next;   /* a list */
};

struct index_leaf {
    index_list here[INDEX_WAYS];
    uint64_t used[INDEX_WAYS / 64]; /* with the lock: not empty */
    void *free;
};

struct index_node {
    struct index_entry {
        _Atomic(struct index_leaf *) below;
        index_list here;
    } entry[INDEX_WAYS];
    uint64_t used[INDEX_WAYS / 64];
    void *free;
};

struct index_top {
    struct index_top_entry {
        _Atomic(struct index_node *) below;
        index_list here;
    } entry[INDEX_TOP];
    uint64_t used[INDEX_TOP / 64];
};

struct index {
    /* Leaves by the low bits of their number: the one that was made last. */
    _Atomic(struct index_leaf *) near[INDEX_NEAR];
    struct index_top *top;
    char *base;    /* of all regions: region i lies at base + i * stride */
    size_t stride; /* 1 << shift */
    size_t per_mark; /* stride / 16 */
    unsigned shift;
    struct pieces nodes, leaves, links;
};

static inline struct lapse_region *index_region(const struct index *x,
                                                uint64_t word)
{
    return (struct lapse_region *)(x->base +
                                   (word >> WORD_INDEX & (REGIONS_MAX - 1)) *
                                       x->stride);
}

/* 16 times the index, as it comes out of a word without a link: where the
 * mark of a region lies; the region itself is so many times `per_mark` behind
 * the first. */
static inline size_t index_mark(uint64_t word)
{
    return word >> (WORD_INDEX - INDEX_MARK) &
           (size_t)(REGIONS_MAX - 1) << INDEX_MARK;
}

static inline uint32_t index_of(const struct index *x,
                                const struct lapse_region *r)
{
    return (uint32_t)((size_t)((const char *)r - x->base) >> x->shift);
}

/* With the lock. */
static inline struct index_node *index_node_of(struct index *x, unsigned i)
{
    return atomic_load_explicit(&x->top->entry[i].below,
                                memory_order_relaxed);
}

static inline struct index_leaf *index_leaf_of(struct index_node *n,
                                               unsigned j)
{
    return atomic_load_explicit(&n->entry[j].below, memory_order_relaxed);
}

/* Room for REGIONS_MAX regions with so much memory for the registrar. */
int index_init(struct index *x, size_t region_bytes);
void index_free(struct index *x);

/* 0, or -ENOMEM: nothing changed. The region's range is whole pages. */
int index_insert(struct index *x, struct lapse_region *r);
void index_remove(struct index *x, struct lapse_region *r);

/* cursor.c. Every list that is not empty and that a region in [page, last] can
 * be in. The index may be changed between two steps. NULL: no more. */
struct index_cursor {
    uint64_t page;
    int level; /* 0 */
};
index_list *index_next(struct index *x, struct index_cursor *c,
                       uint64_t last);

static inline struct index_link *index_link_of(uint64_t word)
{
    return (struct index_link *)(uintptr_t)((word & ~WORD_LINK) >> WORD_ADDR);
}

static inline uint64_t index_word_of(const struct index_link *link)
{
    return (uint64_t)(uintptr_t)link << WORD_ADDR | WORD_LINK;
}

/* With the lock: the regions of a list are index_at() of index_word(), and of
 * the index_rest() of that, until one is 0. */
static inline uint64_t index_word(index_list *list)
{
    return atomic_load_explicit(list, memory_order_relaxed);
}

static inline struct lapse_region *index_at(const struct index *x,
                                            uint64_t word)
{
    if (word & WORD_LINK)
        word = atomic_load_explicit(&index_link_of(word)->region,
                                    memory_order_relaxed);
    return index_region(x, word);
}

static inline uint64_t index_rest(uint64_t word)
{
    return word & WORD_LINK
               ? atomic_load_explicit(&index_link_of(word)->next,
                                      memory_order_relaxed)
               : 0;
}

/* With the lock: the first of a list, or NULL. */
static inline struct lapse_region *index_first(const struct index *x,
                                               index_list *list)
{
    uint64_t word = index_word(list);

    return word ? index_at(x, word) : NULL;
}

/* What is looked for. */
struct lookup {
    struct lapse_rcache *c;
    struct tally *tally;
    uintptr_t start, end;
    unsigned access;
};
/* Says whether this region is it, and holds it then. */
typedef bool index_taken(struct lapse_region *r, const struct lookup *l);

/* Look into all lists; into links of one list at most `steps`. */
struct lapse_region *index_find(struct index *x, const struct lookup *l,
                                index_taken *taken, int steps);

/* The list of the page, or of the same page of another 2 MiB; NULL: neither
 * is there. For index_matches(), which tells them apart. */
static inline __attribute__((always_inline)) index_list *
index_near(const struct index *x, uintptr_t addr)
{
    /* acquire X1: pairs with X2 in index.c, for what is pointed to */
    struct index_leaf *leaf = atomic_load_explicit(
        &x->near[(uint16_t)(addr >> (INDEX_PAGE + INDEX_BITS))],
        memory_order_acquire);

    /* The place in the leaf, in one shift and one mask. */
    return leaf ? (index_list *)((char *)leaf->here +
                                 (addr >> (INDEX_PAGE - 3) &
                                  (INDEX_WAYS - 1) * sizeof(index_list)))
                : NULL;
}

/* Is the list's word still this one? (acquire, as all loads of x86; compilers
 * would load it first, and compare then.) */
static inline __attribute__((always_inline)) bool
index_still(index_list *list, uint64_t word)
{
#if defined(__GCC_ASM_FLAG_OUTPUTS__) && !defined(__SANITIZE_THREAD__)
    bool same;

    __asm__ volatile("cmpq %2, %1"
                     : "=@cce"(same)
                     : "m"(*list), "r"(word)
                     : "memory");
    return same;
#else
    return atomic_load_explicit(list, memory_order_acquire) == word;
#endif
}

/* Does the word, from a list of that page or another, say that its region
 * covers this? Neither 0 nor a link does. */
static inline __attribute__((always_inline)) bool
index_matches(uint64_t word, uintptr_t start, uintptr_t last, unsigned access)
{
    return word >> WORD_2MIB == start >> (INDEX_PAGE + INDEX_BITS) &&
           !(~(unsigned)(uint8_t)(word >> WORD_ACCESS) & access) &&
           (last >> INDEX_PAGE) - (start >> INDEX_PAGE) < (uint8_t)word;
}

#endif
