/* SPDX-License-Identifier: BSD-3-Clause */
#include "lru.h"

#include <errno.h>

#include "pieces.h"

#define HEAP_BYTES (REGIONS_MAX * sizeof(struct lapse_region *))

int lru_init(struct lru *l)
{
    l->n = 0;
    l->heap = pieces_map(HEAP_BYTES);
    return l->heap ? 0 : -ENOMEM;
}

void lru_free(struct lru *l)
{
    pieces_unmap(l->heap, HEAP_BYTES);
}

static void put_at(struct lru *l, uint32_t i, struct lapse_region *r)
{
    l->heap[i] = r;
    r->place = i;
}

static void rise(struct lru *l, uint32_t i, struct lapse_region *r)
{
    while (i && l->heap[(i - 1) / 2]->used > r->used) {
        put_at(l, i, l->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    put_at(l, i, r);
}

static void sink(struct lru *l, uint32_t i, struct lapse_region *r)
{
    for (uint32_t child; (child = 2 * i + 1) < l->n; i = child) {
        if (child + 1 < l->n &&
            l->heap[child + 1]->used < l->heap[child]->used)
            child++;
        if (l->heap[child]->used >= r->used)
            break;
        put_at(l, i, l->heap[child]);
    }
    put_at(l, i, r);
}

void lru_add(struct lru *l, struct lapse_region *r, uint64_t now)
{
    r->used = now;
    rise(l, l->n++, r);
}

void lru_remove(struct lru *l, struct lapse_region *r)
{
    uint32_t hole = r->place;
    struct lapse_region *last = l->heap[--l->n];

    if (last == r)
        return;
    if (last->used < r->used)
        rise(l, hole, last);
    else
        sink(l, hole, last);
}

struct lapse_region *lru_oldest(struct lru *l, const struct tallies *all,
                                uint64_t now, uint32_t looks)
{
    while (l->n) {
        struct lapse_region *r = l->heap[0];
        uint64_t used = tally_used(all, r->index);

        if (tally_sum(all, r->index)) {
            if (!looks--)
                return NULL;
            used = now;
        } else if (used <= r->used) {
            return r;
        }
        r->used = used > r->used ? used : r->used;
        sink(l, 0, r);
    }
    return NULL;
}
