/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A miss: watch, register, hear of releases, insert (DESIGN 5). Only the
 * insertion and the last look for releases happen under the lock, in one hold
 * of it; while the registrar runs, the region is among the makers, where
 * releases mark it as lapsed and other threads that want it wait for it.
 */
#include "cache.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#define PAGE ((uintptr_t)1 << INDEX_PAGE)
#define USER_END ((uintptr_t)1 << (INDEX_PAGE + 2 * INDEX_BITS + \
                                   INDEX_TOP_BITS))

struct range {
    uintptr_t start, end;
};

/* The futex is the low half of the word (x86 is little-endian). */
static void futex(_Atomic uint64_t *word, int op, uint32_t value)
{
    int err = errno;

    syscall(SYS_futex, word, op, value, NULL, NULL, 0);
    errno = err;
}

static struct range rounded(struct lookup *l, uintptr_t align)
{
    struct range r = {l->start & ~(align - 1),
                      (l->end + align - 1) & ~(align - 1)};

    if (!r.start) /* page 0 is nobody's */
        r.start = l->start & ~(PAGE - 1);
    if (r.end > USER_END || r.end < l->end)
        r.end = (l->end + PAGE - 1) & ~(PAGE - 1);
    return r;
}

static unsigned access_of(struct lapse_region *r)
{
    return atomic_load_explicit(&r->access, memory_order_relaxed);
}

/* With this one, if that is not too large. */
static struct range joined(struct lapse_rcache *c, struct range range,
                           struct lapse_region *r)
{
    struct range both = range;

    if (region_start(r) < both.start)
        both.start = region_start(r);
    if (region_end(r) > both.end)
        both.end = region_end(r);
    return both.end - both.start <= c->limits.merge_bytes ? both : range;
}

/* Take the live regions that lie at a page into the range. Only such of the
 * same rights: more could not be registered. */
static void merge_at(struct lapse_rcache *c, uint64_t page, unsigned access,
                     struct range *range)
{
    struct index_cursor cursor = {.page = page};

    for (index_list *list; (list = index_next(&c->index, &cursor, page));)
        for (uint64_t w = index_word(list); w; w = index_rest(w))
            if (access_of(index_at(&c->index, w)) == access)
                *range = joined(c, *range, index_at(&c->index, w));
}

static struct range choose(struct lookup *l)
{
    struct lapse_rcache *c = l->c;
    struct range range = rounded(l, c->limits.align);
    uint64_t first = range.start >> INDEX_PAGE;
    uint64_t end = range.end >> INDEX_PAGE;

    if (c->limits.merge_bytes) {
        merge_at(c, first - 1, l->access, &range);
        merge_at(c, first, l->access, &range);
        merge_at(c, end - 1, l->access, &range);
        merge_at(c, end, l->access, &range);
    }
    /* Not what was asked for alone would be over the limit. */
    if (c->limits.max_bytes && range.end - range.start > c->limits.max_bytes)
        range = rounded(l, PAGE);
    return range;
}

/* With the lock: hear_range() and those who wait look at makers. release:
 * S4, pairs with S3; who sees these sees that the state has moved on. */
static void set_range(struct lapse_region *r, struct range range)
{
    atomic_store_explicit(&r->start, range.start, memory_order_release);
    atomic_store_explicit(&r->end, range.end, memory_order_release);
}

static struct lapse_region *begin(struct lookup *l, struct dead_list *dead)
{
    struct lapse_rcache *c = l->c;
    struct lapse_region *r = gc_new_region(c);
    struct range range;

    if (!r)
        return NULL;
    range = choose(l);
    evict_to_limits(c, range.end - range.start, 1, dead);
    region_enter(r, REGION_MAKING);
    set_range(r, range);
    atomic_store_explicit(&r->access, l->access, memory_order_release);
    r->maker = (int32_t)syscall(SYS_gettid);
    r->lapsed = r->waited = false;
    r->awaits = 0;
    r->next = c->makers;
    c->makers = r;
    return r;
}

/* No maker any more; with the lock. Says whether somebody waits. */
static bool unlink_maker(struct lapse_rcache *c, struct lapse_region *r)
{
    struct lapse_region **at = &c->makers;

    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    for (struct lapse_region *m = c->makers; r->waited && m; m = m->next)
        if (m->awaits == r->index + 1)
            m->awaits = 0;
    return r->waited;
}

static struct lapse_region *awaited(struct lapse_rcache *c, uint32_t index)
{
    struct lapse_region *r = c->makers;

    while (r && r->index != index)
        r = r->next;
    return r;
}

/* A registrar may get other regions: not if who makes that one waits for us,
 * or for one who does. With the lock. 1, or -EDEADLK. */
static int wait_for(struct lapse_rcache *c, struct lapse_region *maker)
{
    int32_t self = (int32_t)syscall(SYS_gettid);

    for (struct lapse_region *r = maker; r;
         r = r->awaits ? awaited(c, r->awaits - 1) : NULL)
        if (r->maker == self)
            return -EDEADLK;
    for (struct lapse_region *r = c->makers; r; r = r->next)
        if (r->maker == self)
            r->awaits = maker->index + 1;
    maker->waited = true;
    return 1;
}

/* MAKING is over; with the lock. */
static void enter(struct lapse_region *r, enum region_state state,
                  bool waited)
{
    region_enter(r, state);
    if (waited)
        futex(&r->state, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

static void give_up(struct lapse_rcache *c, struct lapse_region *r)
{
    cache_lock(c);
    enter(r, REGION_FREE, unlink_maker(c, r));
    region_push(&c->freed, r);
    cache_unlock(c);
}

/* The first of a list that the new one is there for. */
static struct lapse_region *covered(struct lapse_rcache *c, index_list *list,
                                    struct lapse_region *r)
{
    for (uint64_t w = index_word(list); w; w = index_rest(w)) {
        struct lapse_region *old = index_at(&c->index, w);

        if (region_start(r) <= region_start(old) &&
            region_end(r) >= region_end(old) &&
            access_of(old) == access_of(r))
            return old;
    }
    return NULL;
}

/* What the new one covers is of no use any more. */
static void swallow(struct lapse_rcache *c, struct lapse_region *r,
                    struct dead_list *dead)
{
    struct index_cursor cursor = {.page = region_start(r) >> INDEX_PAGE};
    uint64_t last = (region_end(r) - 1) >> INDEX_PAGE;

    for (index_list *list; (list = index_next(&c->index, &cursor, last));)
        for (struct lapse_region *old; (old = covered(c, list, r));) {
            hear_kill(c, old, dead);
            c->merged++;
        }
}

/* Found from here on, and held by the caller. With the lock. */
static int insert(struct lookup *l, struct lapse_region *r,
                  struct dead_list *dead)
{
    struct lapse_rcache *c = l->c;
    uint64_t now;
    bool waited;
    int err;

    if (c->limits.merge_bytes)
        swallow(c, r, dead);
    err = index_insert(&c->index, r);
    if (err)
        return err;
    now = tallies_now(&c->tallies);
    tally_sync(l->tally, now);
    waited = unlink_maker(c, r);
    lru_add(&c->lru, r, now);
    c->bytes += region_end(r) - region_start(r);
    tally_add(&c->tallies, l->tally, r->index, 1);
    enter(r, REGION_LIVE, waited);
    tick_wake(c);
    return 0;
}

/* Register what is watched, until no release meets it. */
static int register_settled(struct lookup *l, struct lapse_region *r)
{
    struct lapse_rcache *c = l->c;
    struct dead_list dead = {NULL};
    struct patience p = {0};

    for (;;) {
        int err = registrar_ask(c, r), told;
        bool lapsed;

        if (err)
            return err;
        cache_lock(c);
        told = hear_releases(c, &dead);
        lapsed = r->lapsed;
        r->lapsed = false;
        if (!lapsed && !told)
            err = insert(l, r, &dead);
        c->retried += lapsed;
        cache_unlock(c);
        gc_finish(c, &dead);
        if (!lapsed && !told && !err)
            return 0;
        registrar_undo(c, r);
        if (told || err)
            return told ? told : err;
        if (!patience_left(&p))
            return -EAGAIN;
    }
}

static int watch_and_register(struct lookup *l, struct lapse_region *r)
{
    struct lapse_rcache *c = l->c;
    void *addr = (void *)region_start(r);
    size_t len = region_end(r) - region_start(r);
    bool blind = c->limits.flags & LAPSE_RCACHE_BLIND;
    int err = blind ? 0 : lapse_watch(c->handle, addr, len);

    if (err)
        return err;
    err = register_settled(l, r);
    if (err && !blind)
        lapse_unwatch(c->handle, addr, len);
    return err;
}

static int make(struct lookup *l, struct lapse_region *r)
{
    struct lapse_rcache *c = l->c;
    struct range least = rounded(l, PAGE);
    int err = watch_and_register(l, r);

    if (err &&
        region_end(r) - region_start(r) > least.end - least.start) {
        /* More than was asked for is not all there, or not all ours, or there
         * is no room for it, or something else of it is being released. */
        cache_lock(c);
        set_range(r, least);
        cache_unlock(c);
        err = watch_and_register(l, r);
    }
    if (err)
        give_up(c, r);
    return err;
}

static struct lapse_region *maker_of(struct lookup *l)
{
    struct lapse_region *r = l->c->makers;

    while (r && !region_covers(r, l->start, l->end, l->access))
        r = r->next;
    return r;
}

/* One try; 1: it waited for another thread to make it, or made room for one
 * more region; look again. */
static int look_or_make(struct lookup *l, struct lapse_region **out)
{
    struct lapse_rcache *c = l->c;
    struct dead_list dead = {NULL};
    struct lapse_region *found = NULL, *maker = NULL, *fresh = NULL;
    uint64_t state = 0;
    int err;

    cache_lock(c);
    err = hear_releases(c, &dead);
    if (!err)
        found = index_find(&c->index, l, lookup_taken, INT32_MAX);
    if (!err && !found && (maker = maker_of(l))) {
        state = region_state(maker);
        err = wait_for(c, maker);
    }
    if (!err && !found) {
        fresh = begin(l, &dead);
        c->misses += fresh != NULL;
        err = fresh ? 0 : -ENOSPC;
    }
    cache_unlock(c);
    gc_finish(c, &dead);
    if (err == -ENOSPC && evict_some(c, 1))
        err = 1;
    else if (err == 1)
        futex(&maker->state, FUTEX_WAIT_PRIVATE, (uint32_t)state);
    if (!err && fresh) {
        err = make(l, fresh);
        found = fresh;
    }
    if (!err)
        *out = found;
    return err;
}

int make_region(struct lookup *l, struct lapse_region **out)
{
    struct lapse_rcache *c = l->c;
    int err;

    if (!cache_is_ours(c))
        return -ESTALE;
    if (l->start < PAGE || l->end <= l->start || l->end > USER_END ||
        l->access > LAPSE_RCACHE_ACCESS)
        err = -EINVAL;
    else if (!l->tally)
        err = -ENOMEM;
    else
        do
            err = look_or_make(l, out);
        while (err == 1);
    if (err) {
        cache_lock(c);
        c->failed++;
        cache_unlock(c);
    }
    return err;
}
