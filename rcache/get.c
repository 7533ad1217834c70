/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hit: is a release to be heard of, which region covers this, count it.
 * No lock, no locked instruction, no store that another thread sees but to
 * the calling thread's own counters (tally.h).
 */
#include "cache.h"

#include <errno.h>

#include "probes.h"

#define UNLIKELY(x) __builtin_expect((x), 0)

/* This thread's tallies of the caches that it used last. By the id, which is
 * never used again: an entry may outlive its cache. */
#define MINE 4
#define NOT_MINE (NO_QUICK - 1) /* no id, and not 0, which `quick` may be */
struct mine {
    uint64_t id;
    struct tally *tally;
};
static __thread struct mine mine[MINE]
    __attribute__((tls_model("initial-exec"))) = {
        [0 ... MINE - 1] = {.id = NOT_MINE}};

/* The same in every thread: that is what initial-exec means. */
uintptr_t mine_offset(uint64_t id)
{
    return (uintptr_t)&mine[id % MINE] - (uintptr_t)__builtin_thread_pointer();
}

static inline struct mine *mine_of(const struct lapse_rcache *c)
{
    return (struct mine *)((uintptr_t)__builtin_thread_pointer() + c->mine);
}

/* Of it, in the hit: without asking for the thread pointer. */
#if defined(__SEG_FS) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
typedef const __seg_fs struct mine *mine_seen;
#define MINE_SEEN(c) ((mine_seen)(c)->mine)
#else
#define MINE_SEEN(c) ((const struct mine *)mine_of(c))
#endif

/* NULL: no memory, or a forked child. */
static struct tally *tally_of(struct lapse_rcache *c)
{
    struct mine *m = mine_of(c);

    if (m->id != c->id && cache_is_ours(c)) {
        m->tally = tally_claim(&c->tallies, c->own.pid);
        m->id = m->tally ? c->id : NOT_MINE;
    }
    return m->id == c->id ? m->tally : NULL;
}

/* T2 by the region itself: count, then look whether it is still the same. */
bool lookup_taken(struct lapse_region *r, const struct lookup *l)
{
    uint64_t state = region_state(r);

    if (region_phase(state) != REGION_LIVE ||
        !region_covers(r, l->start, l->end, l->access))
        return false;
    rcache_test_pause();
    tally_add(&l->c->tallies, l->tally, r->index, 1);
    if (region_state(r) != state) {
        region_put(l->c, l->tally, r);
        return false;
    }
    tally_hit(l->tally, tally_mark(l->tally, r->index));
    return true;
}

void region_put(struct lapse_rcache *c, struct tally *t,
                struct lapse_region *r)
{
    tally_add(&c->tallies, t, r->index, -1u);
    if (region_phase(region_state(r)) == REGION_DEAD)
        gc_last_put(c, t, r);
}

/* Nothing to be heard of, nobody is hearing, and this is no child. acquire D2:
 * `draining` after the word of lapse_pending(); see hear_releases() */
static inline bool settled(lapse_rcache *c)
{
    return !lapse_pending(c->handle) &&
           !atomic_load_explicit(&c->own.draining, memory_order_acquire) &&
           atomic_load_explicit(&c->own.quick, memory_order_acquire);
}

static __attribute__((noinline)) int get_slow(lapse_rcache *c,
                                              uintptr_t start, size_t len,
                                              unsigned access,
                                              lapse_region **out)
{
    struct lookup l = {.c = c,
                       .tally = tally_of(c),
                       .start = start,
                       .end = start + len,
                       .access = access};
    struct lapse_region *r = NULL;

    if (l.end > l.start && l.tally && settled(c))
        r = index_find(&c->index, &l, lookup_taken, INDEX_STEPS);
    if (!r) {
        probe_miss(c, start, len);
        return make_region(&l, out);
    }
    probe_hit(c, start, len, r);
    *out = r;
    return 0;
}

/* The word changed after it was counted for. */
static __attribute__((noinline)) int get_lost(lapse_rcache *c,
                                              uintptr_t start, size_t len,
                                              unsigned access,
                                              lapse_region **out,
                                              uint64_t word)
{
    region_put(c, mine_of(c)->tally, index_region(&c->index, word));
    return get_slow(c, start, len, access, out);
}

/* T2 by the word in the index (X3): count, then look whether it still says
 * so. It is gone from there before the region is DEAD. */
int lapse_rcache_get(lapse_rcache *c, const void *addr, size_t len,
                     unsigned access, lapse_region **out)
{
    uintptr_t start = (uintptr_t)addr;
    struct tally *t = MINE_SEEN(c)->tally;
    struct tally_mark *m;
    index_list *list;
    uint64_t word;
    size_t mark;

    if (!c->handle.word) /* it is a handle: lapse_pending() need not ask */
        __builtin_unreachable();
    /* acquire D2: `quick` after the word of lapse_pending(). A length below 0
     * could end, once around, in the page where it began. */
    if (UNLIKELY(lapse_pending(c->handle) || (intptr_t)len <= 0 ||
                 MINE_SEEN(c)->id !=
                     atomic_load_explicit(&c->own.quick, memory_order_acquire)))
        return get_slow(c, start, len, access, out);
    list = index_near(&c->index, start);
    if (UNLIKELY(!list))
        return get_slow(c, start, len, access, out);
    word = atomic_load_explicit(list, memory_order_acquire);
    if (UNLIKELY(!index_matches(word, start, start + len - 1, access)))
        return get_slow(c, start, len, access, out);
    rcache_test_pause();
    mark = index_mark(word);
    m = tally_mark_at(t, mark);
    tally_add_plain(m, 1);
    if (UNLIKELY(!index_still(list, word)))
        return get_lost(c, start, len, access, out, word);
    tally_hit(t, m);
    *out = (struct lapse_region *)(c->regions + mark * c->per_mark);
    probe_hit(c, start, len, *out);
    return 0;
}

static __attribute__((noinline)) void put_slow(lapse_rcache *c,
                                               lapse_region *r)
{
    struct tally *t = tally_of(c);

    if (t) {
        region_put(c, t, r);
        return;
    }
    /* No memory for counters of this thread: those of all such threads. */
    t = c->tallies.shared;
    tally_add_locked(t, r->index, -1u);
    if (region_phase(region_state(r)) == REGION_DEAD)
        gc_last_put(c, t, r);
}

static __attribute__((noinline)) void put_dead(lapse_rcache *c,
                                               lapse_region *r)
{
    if (region_phase(region_state(r)) == REGION_DEAD)
        gc_last_put(c, mine_of(c)->tally, r);
}

void lapse_rcache_put(lapse_rcache *c, lapse_region *r)
{
    size_t mark = (size_t)((char *)r - c->regions) >> c->marks;

    /* relaxed: whether this thread has counters; it may be said no wrongly */
    if (UNLIKELY(MINE_SEEN(c)->id !=
                 atomic_load_explicit(&c->own.quick, memory_order_relaxed))) {
        put_slow(c, r);
        return;
    }
    tally_add_plain(tally_mark_at(MINE_SEEN(c)->tally, mark), -1u);
    rcache_test_pause();
    /* While none is DEAD, this one is not. relaxed: ordered by T2 and T3 */
    if (UNLIKELY(atomic_load_explicit(&c->going, memory_order_relaxed)))
        put_dead(c, r);
}

void *lapse_region_addr(const lapse_region *r)
{
    return (void *)region_start(r);
}

size_t lapse_region_len(const lapse_region *r)
{
    return region_end(r) - region_start(r);
}
