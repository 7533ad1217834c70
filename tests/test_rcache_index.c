/* SPDX-License-Identifier: BSD-3-Clause */
/* The index against a plain list of regions: random regions of all sizes come
 * and go, and every answer is compared. */
#include "rcache/index.h"

#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>

#include "rcache/tally.h"
#include "tests/unit.h"

#define REGIONS 300
#define SPACE 2000000 /* pages: some GiB */

static struct index *x;
static struct lapse_region *one[REGIONS];
static bool live[REGIONS];
static uint64_t seed = 88172645463325252ull;

static void start(void)
{
    x = pieces_map(sizeof(*x));
    cr_assert_eq(index_init(x, 16), 0);
    for (uint32_t i = 0; i < REGIONS; i++) {
        one[i] = index_region(x, (uint64_t)i << WORD_INDEX);
        one[i]->index = i;
        cr_assert_eq(index_of(x, one[i]), i);
    }
}

TestSuite(rcache_index, .init = start);

static uint64_t random_below(uint64_t n)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed % n;
}

/* Mostly small, near each other; some large and aligned. */
static void random_range(uint64_t *first, uint64_t *pages)
{
    static const uint64_t most[] = {1, 8, 600, 2000, 600000};
    static const uint64_t align[] = {1, 1, 1, 512, 262144};
    uint64_t a = align[random_below(5)];

    *pages = 1 + random_below(most[random_below(5)]);
    if (random_below(2))
        *pages = (*pages + a - 1) / a * a;
    *first = 1000 + random_below(random_below(2) ? 3000 : SPACE) / a * a;
}

static bool overlaps(struct lapse_region *r, uint64_t first, uint64_t last)
{
    return region_start(r) >> INDEX_PAGE <= last &&
           region_end(r) >> INDEX_PAGE > first;
}

static bool taken(struct lapse_region *r, const struct lookup *l)
{
    return region_covers(r, l->start, l->end, l->access);
}

static void check_find(uint64_t first, uint64_t pages)
{
    struct lookup l = {.start = first << INDEX_PAGE,
                       .end = (first + pages) << INDEX_PAGE,
                       .access = 1};
    struct lapse_region *r = index_find(x, &l, taken, INT32_MAX);
    index_list *list = index_near(x, l.start);
    bool there = false;

    for (int i = 0; i < REGIONS; i++)
        there |= live[i] && region_covers(one[i], l.start, l.end, 1);
    cr_assert_eq(r != NULL, there, "%lu, %lu pages", first, pages);
    if (list && index_matches(*list, l.start, l.end - 1, 1)) {
        r = index_region(x, *list);
        cr_assert(live[index_of(x, r)] && taken(r, &l));
    }
}

static void check_next(uint64_t first, uint64_t pages)
{
    struct index_cursor c = {.page = first};
    bool seen[REGIONS] = {false};

    for (index_list *list; (list = index_next(x, &c, first + pages - 1));) {
        uint64_t word = *list;

        while (word & WORD_LINK) {
            seen[index_of(x, index_region(x, index_link_of(word)->region))] =
                true;
            word = index_link_of(word)->next;
        }
        if (word)
            seen[index_of(x, index_region(x, word))] = true;
    }
    for (int i = 0; i < REGIONS; i++)
        cr_assert_eq(seen[i],
                     live[i] && overlaps(one[i], first, first + pages - 1),
                     "%lu, %lu pages", first, pages);
}

static void change(int i)
{
    uint64_t first, pages;

    if (live[i]) {
        index_remove(x, one[i]);
    } else {
        random_range(&first, &pages);
        one[i]->start = first << INDEX_PAGE;
        one[i]->end = (first + pages) << INDEX_PAGE;
        one[i]->access = 1;
        cr_assert_eq(index_insert(x, one[i]), 0);
    }
    live[i] = !live[i];
}

Test(rcache_index, agrees_with_a_list)
{
    for (int step = 0; step < 6000; step++) {
        uint64_t first, pages;

        /* Half of the time many regions, half few. */
        change((int)random_below(step / 1000 % 2 ? 10 : REGIONS));
        random_range(&first, &pages);
        check_find(first, 1 + random_below(3));
        check_next(first, pages);
    }
}

Test(rcache_index, gives_back_what_it_used)
{
    size_t bytes = 0;

    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < REGIONS; i++)
            change(i);
        for (int i = 0; i < REGIONS; i++)
            change(i);
        for (unsigned w = 0; w < INDEX_TOP / 64; w++)
            cr_assert_eq(x->top->used[w], 0);
        if (round == 30)
            bytes = x->leaves.bytes + x->nodes.bytes + x->links.bytes;
    }
    cr_expect(x->leaves.bytes + x->nodes.bytes + x->links.bytes <=
              bytes + bytes / 4);
}

/* As if no chunk could be mapped. */
static int insert_without_memory(int i, int times)
{
    struct rlimit before, none;
    int done = 0;

    for (struct pieces *s = &x->nodes; s <= &x->links; s++)
        while (s->end - s->fresh >= (ptrdiff_t)s->size)
            pieces_take(s);
    getrlimit(RLIMIT_AS, &before);
    none = before;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_AS, &none);
    while (times--)
        done += index_insert(x, one[i]) != -ENOMEM;
    setrlimit(RLIMIT_AS, &before);
    return done;
}

static _Atomic bool looking = true, seen;

/* As a hit does. */
static void *look_main(void *list)
{
    while (looking)
        if (*(index_list *)list)
            seen = true;
    return NULL;
}

static void place(int i, uint64_t first, uint64_t pages)
{
    one[i]->start = first << INDEX_PAGE;
    one[i]->end = (first + pages) << INDEX_PAGE;
    one[i]->access = 1;
}

Test(rcache_index, what_does_not_fit_is_never_found)
{
    uint64_t leaf = 512 * 1000; /* in the GiB that ends with leaf 1023 */
    pthread_t t;

#ifdef __SANITIZE_ADDRESS__
    cr_skip("the sanitizer maps memory, too, and dies without");
#endif
    place(0, leaf + 400, 1);
    place(1, leaf, 401);                       /* wants two links */
    place(2, leaf + 500, 12 + 23 * 512 + 700); /* and this a node */
    cr_assert_eq(index_insert(x, one[0]), 0);
    pthread_create(&t, NULL, look_main, index_near(x, leaf << INDEX_PAGE));
    cr_expect_eq(insert_without_memory(1, 20000), 0);
    looking = false;
    pthread_join(t, NULL);
    cr_expect(!seen);
    cr_expect_eq(insert_without_memory(2, 1), 0);
    live[0] = true;
    check_next(leaf, 512 * 100);
    for (int i = 1; i < 3; i++)
        cr_assert_eq(index_insert(x, one[i]), 0);
    for (int i = 0; i < 3; i++)
        index_remove(x, one[i]);
    for (unsigned w = 0; w < INDEX_TOP / 64; w++)
        cr_expect_eq(x->top->used[w], 0);
}
