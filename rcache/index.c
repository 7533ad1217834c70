/* SPDX-License-Identifier: BSD-3-Clause */
#include "index.h"

#include <errno.h>

/* relaxed: written with the lock held, which we hold */
static uint64_t get(index_list *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* release X2: pairs with X1 */
static void set(index_list *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

static size_t regions_bytes(const struct index *x)
{
    return (size_t)REGIONS_MAX << x->shift;
}

int index_init(struct index *x, size_t region_bytes)
{
    size_t bytes = offsetof(struct lapse_region, memory) + region_bytes;

    x->shift = 6;
    while ((size_t)1 << x->shift < bytes)
        x->shift++;
    x->stride = (size_t)1 << x->shift;
    x->per_mark = x->stride >> INDEX_MARK;
    x->top = pieces_map(sizeof(*x->top));
    x->base = pieces_map_large(regions_bytes(x));
    pieces_init(&x->nodes, (sizeof(struct index_node) + 63) / 64 * 64,
              offsetof(struct index_node, free));
    pieces_init(&x->leaves, (sizeof(struct index_leaf) + 63) / 64 * 64,
              offsetof(struct index_leaf, free));
    /* The link of a free one is the next of a list. A reader that follows it
     * finds no top bit in it, and stops. */
    pieces_init(&x->links, sizeof(struct index_link),
              offsetof(struct index_link, next));
    return x->top && x->base ? 0 : -ENOMEM;
}

void index_free(struct index *x)
{
    pieces_unmap(x->top, sizeof(*x->top));
    pieces_unmap(x->base, regions_bytes(x));
    pieces_free(&x->nodes);
    pieces_free(&x->leaves);
    pieces_free(&x->links);
}

static struct lapse_region *find_in(struct index *x, index_list *list,
                                    const struct lookup *l,
                                    index_taken *taken, int steps)
{
    /* acquire X1 */
    uint64_t word = atomic_load_explicit(list, memory_order_acquire);

    for (int i = 0; word && i < steps; i++) {
        struct index_link *link = index_link_of(word);
        uint64_t one = word, next = 0;

        if (word & WORD_LINK) {
            one = atomic_load_explicit(&link->region, memory_order_acquire);
            next = atomic_load_explicit(&link->next, memory_order_acquire);
        }
        if (one && taken(index_region(x, one), l))
            return index_region(x, one);
        word = next & WORD_LINK ? next : 0;
    }
    return NULL;
}

struct lapse_region *index_find(struct index *x, const struct lookup *l,
                                index_taken *taken, int steps)
{
    uint64_t page = l->start >> INDEX_PAGE;
    struct index_top_entry *top =
        &x->top->entry[page / GIB_PAGES % INDEX_TOP];
    struct index_node *n =
        atomic_load_explicit(&top->below, memory_order_acquire);
    struct index_entry *entry =
        n ? &n->entry[page / LEAF_PAGES % INDEX_WAYS] : NULL;
    struct index_leaf *leaf =
        entry ? atomic_load_explicit(&entry->below, memory_order_acquire)
              : NULL;
    struct lapse_region *r = find_in(x, &top->here, l, taken, steps);

    if (!r && entry)
        r = find_in(x, &entry->here, l, taken, steps);
    if (!r && leaf)
        r = find_in(x, &leaf->here[page % LEAF_PAGES], l, taken, steps);
    return r;
}

/* Where a range, beginning at a page, sits. */
struct place {
    index_list *here;
    uint64_t pages; /* that this entry spans */
    unsigned i, j, k;
    struct index_node *node; /* NULL: an entry of the top */
    struct index_leaf *leaf; /* NULL: an entry of the node */
};

static void mark(uint64_t *used, unsigned i, bool yes)
{
    if (yes)
        used[i / 64] |= (uint64_t)1 << i % 64;
    else
        used[i / 64] &= ~((uint64_t)1 << i % 64);
}

static bool make_node(struct index *x, struct place *p)
{
    p->node = pieces_take(&x->nodes);
    if (!p->node)
        return false;
    mark(x->top->used, p->i, true);
    atomic_store_explicit(&x->top->entry[p->i].below, p->node,
                          memory_order_release);
    return true;
}

static _Atomic(struct index_leaf *) *near_of(struct index *x,
                                             const struct place *p)
{
    return &x->near[(p->i * INDEX_WAYS + p->j) % INDEX_NEAR];
}

static bool make_leaf(struct index *x, struct place *p)
{
    p->leaf = pieces_take(&x->leaves);
    if (!p->leaf)
        return false;
    mark(p->node->used, p->j, true);
    atomic_store_explicit(&p->node->entry[p->j].below, p->leaf,
                          memory_order_release);
    atomic_store_explicit(near_of(x, p), p->leaf, memory_order_release);
    return true;
}

/* False: there is none, and (make) no memory to make it. */
static bool find_place(struct index *x, uint64_t page, uint64_t left,
                       bool make, struct place *p)
{
    *p = (struct place){.i = (unsigned)(page / GIB_PAGES),
                        .j = (unsigned)(page / LEAF_PAGES % INDEX_WAYS),
                        .k = (unsigned)(page % LEAF_PAGES)};
    if (!(page % GIB_PAGES) && left >= GIB_PAGES) {
        p->here = &x->top->entry[p->i].here;
        p->pages = GIB_PAGES;
        return true;
    }
    p->node = index_node_of(x, p->i);
    p->pages = GIB_PAGES - page % GIB_PAGES;
    if (!p->node && (!make || !make_node(x, p)))
        return false;
    if (!p->k && left >= LEAF_PAGES) {
        p->here = &p->node->entry[p->j].here;
        p->pages = LEAF_PAGES;
        return true;
    }
    p->leaf = index_leaf_of(p->node, p->j);
    p->pages = LEAF_PAGES - p->k;
    if (!p->leaf && (!make || !make_leaf(x, p)))
        return false;
    p->here = &p->leaf->here[p->k];
    p->pages = 1;
    return true;
}

static bool all_zero(const uint64_t *used)
{
    uint64_t any = 0;

    for (unsigned w = 0; w < INDEX_WAYS / 64; w++)
        any |= used[w];
    return !any;
}

/* After a list changed: say so above, and give empty nodes back. */
static void settle(struct index *x, struct place *p)
{
    struct index_top_entry *top = &x->top->entry[p->i];

    if (p->leaf) {
        mark(p->leaf->used, p->k, get(p->here));
        if (all_zero(p->leaf->used)) {
            atomic_store_explicit(&p->node->entry[p->j].below, NULL,
                                  memory_order_release);
            if (atomic_load_explicit(near_of(x, p), memory_order_relaxed) ==
                p->leaf)
                atomic_store_explicit(near_of(x, p), NULL,
                                      memory_order_release);
            pieces_give(&x->leaves, p->leaf);
        }
    }
    if (p->node) {
        mark(p->node->used, p->j,
             get(&p->node->entry[p->j].here) || index_leaf_of(p->node, p->j));
        if (all_zero(p->node->used)) {
            atomic_store_explicit(&top->below, NULL, memory_order_release);
            pieces_give(&x->nodes, p->node);
        }
    }
    mark(x->top->used, p->i, get(&top->here) || index_node_of(x, p->i));
}

/* For one more in this list. */
static size_t links_for(index_list *list)
{
    return !get(list) ? 0 : get(list) & WORD_LINK ? 1 : 2;
}

static uint64_t new_link(struct index *x, uint64_t region, uint64_t next)
{
    struct index_link *link = pieces_take(&x->links); /* was reserved */

    set(&link->region, region);
    set(&link->next, next);
    return index_word_of(link);
}

static void list_add(struct index *x, index_list *list, uint64_t word)
{
    uint64_t old = get(list);

    if (old && !(old & WORD_LINK)) /* a lone region becomes the last link */
        old = new_link(x, old, 0);
    set(list, old ? new_link(x, word, old) : word);
}

static bool names(const struct index *x, uint64_t word,
                  const struct lapse_region *r)
{
    return word && index_region(x, word) == r;
}

static void list_remove(struct index *x, index_list *list,
                        struct lapse_region *r)
{
    uint64_t word = get(list);

    if (!(word & WORD_LINK) && names(x, word, r))
        set(list, 0);
    while (word & WORD_LINK) {
        struct index_link *link = index_link_of(word);

        word = get(&link->next);
        if (names(x, get(&link->region), r)) {
            set(list, word);
            pieces_give(&x->links, link);
            return;
        }
        list = &link->next;
    }
}

/* A list of one link is made a lone region, which is faster to find. */
static void list_tidy(struct index *x, index_list *list)
{
    uint64_t word = get(list);
    struct index_link *link = index_link_of(word);

    if (!(word & WORD_LINK) || get(&link->next))
        return;
    set(list, get(&link->region));
    pieces_give(&x->links, link);
}

/* What the list at this page says of a region. */
static uint64_t word_of(const struct index *x, const struct lapse_region *r,
                        uint64_t page)
{
    uint64_t left = (region_end(r) >> INDEX_PAGE) - page;
    uint64_t access = atomic_load_explicit(&r->access, memory_order_relaxed);

    if (left > WORD_LEFT_MOST)
        left = WORD_LEFT_MOST;
    return (uint64_t)index_of(x, r) << WORD_INDEX |
           page / LEAF_PAGES << WORD_2MIB | access << WORD_ACCESS | left;
}

static uint64_t first_page(struct lapse_region *r)
{
    return region_start(r) >> INDEX_PAGE;
}

static uint64_t end_page(struct lapse_region *r)
{
    return region_end(r) >> INDEX_PAGE;
}

/* Nodes and links for all of it; on failure those until `end` may be empty. */
static bool make_room(struct index *x, struct lapse_region *r, uint64_t *end)
{
    size_t links = 0;
    struct place p;

    for (*end = first_page(r); *end < end_page(r); *end += p.pages) {
        if (!find_place(x, *end, end_page(r) - *end, true, &p)) {
            if (p.node)
                settle(x, &p);
            return false;
        }
        links += links_for(p.here);
    }
    return pieces_reserve(&x->links, links);
}

int index_insert(struct index *x, struct lapse_region *r)
{
    uint64_t page, end;
    struct place p;
    bool room = make_room(x, r, &end);

    /* Lookups find it from its first word on: so nothing fails after that. */
    for (page = first_page(r); page < end; page += p.pages) {
        find_place(x, page, end_page(r) - page, false, &p);
        if (room)
            list_add(x, p.here, word_of(x, r, page));
        settle(x, &p);
    }
    return room ? 0 : -ENOMEM;
}

void index_remove(struct index *x, struct lapse_region *r)
{
    struct place p;

    for (uint64_t page = first_page(r); page < end_page(r); page += p.pages) {
        find_place(x, page, end_page(r) - page, false, &p);
        list_remove(x, p.here, r);
        list_tidy(x, p.here);
        settle(x, &p);
    }
}
