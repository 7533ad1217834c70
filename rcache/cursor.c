/* SPDX-License-Identifier: BSD-3-Clause */
/* Through the index (index.h), with the lock: all lists that are not empty. */
#include "index.h"

/* The first bit at or after i; `n` when there is none. */
static unsigned next_used(const uint64_t *used, unsigned i, unsigned n)
{
    for (unsigned w = i / 64; w < n / 64; w++) {
        uint64_t bits = used[w];

        if (w == i / 64)
            bits &= ~(uint64_t)0 << i % 64;
        if (bits)
            return w * 64 + (unsigned)__builtin_ctzll(bits);
    }
    return n;
}

/* To a page whose larger lists, if it is not the first, were looked at. */
static void cursor_go(struct index_cursor *c, uint64_t page)
{
    c->page = page;
    c->level = page % LEAF_PAGES ? 2 : page % GIB_PAGES ? 1 : 0;
}

/* Each step is at one list, of a GiB, of 2 MiB, of a page (`at`: its first
 * that counts), and leaves the cursor where to look next. NULL: none here. */
static index_list *step_top(struct index *x, struct index_cursor *c,
                            uint64_t *at)
{
    unsigned i = (unsigned)(c->page / GIB_PAGES);
    unsigned next = next_used(x->top->used, i, INDEX_TOP);

    if (next != i)
        c->page = next * GIB_PAGES;
    c->level = 1;
    *at = c->page;
    return next == INDEX_TOP ? NULL : &x->top->entry[next].here;
}

static index_list *step_node(struct index *x, struct index_cursor *c,
                             uint64_t *at)
{
    uint64_t gib = c->page / GIB_PAGES;
    struct index_node *n = index_node_of(x, (unsigned)gib);
    unsigned j = (unsigned)(c->page / LEAF_PAGES % INDEX_WAYS);
    unsigned next = n ? next_used(n->used, j, INDEX_WAYS) : INDEX_WAYS;

    if (next == INDEX_WAYS) {
        cursor_go(c, (gib + 1) * GIB_PAGES);
        return NULL;
    }
    if (next != j)
        c->page = gib * GIB_PAGES + next * LEAF_PAGES;
    c->level = 2;
    *at = c->page;
    return &n->entry[next].here;
}

static index_list *step_leaf(struct index *x, struct index_cursor *c,
                             uint64_t *at)
{
    struct index_node *n = index_node_of(x, (unsigned)(c->page / GIB_PAGES));
    unsigned j = (unsigned)(c->page / LEAF_PAGES % INDEX_WAYS);
    struct index_leaf *l = n ? index_leaf_of(n, j) : NULL;
    unsigned k = (unsigned)(c->page % LEAF_PAGES);
    unsigned next = l ? next_used(l->used, k, INDEX_WAYS) : INDEX_WAYS;

    *at = c->page - k + next;
    if (next == INDEX_WAYS) {
        cursor_go(c, *at);
        return NULL;
    }
    cursor_go(c, *at + 1);
    return &l->here[next];
}

index_list *index_next(struct index *x, struct index_cursor *c, uint64_t last)
{
    if (last >= INDEX_TOP * GIB_PAGES)
        last = INDEX_TOP * GIB_PAGES - 1;
    while (c->page <= last) {
        uint64_t at = 0;
        index_list *list = c->level == 0   ? step_top(x, c, &at)
                           : c->level == 1 ? step_node(x, c, &at)
                                           : step_leaf(x, c, &at);

        if (list && at > last)
            return NULL;
        if (list && atomic_load_explicit(list, memory_order_relaxed))
            return list;
    }
    return NULL;
}
