/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Extent hooks that keep what is watched.
 *
 * How jemalloc (5.0 to 5.3) gives up an extent decides how it can be refused.
 * It asks dalloc, decommit, purge_forced and purge_lazy in this order until
 * one agrees, and puts the extent with those it retains whatever they say.
 * From there it never purges again: were all four simply refused, the pages
 * would stay resident until the memory is used and freed once more, maybe for
 * ever. So the bridge agrees to decommit and does it later (kept.h). jemalloc
 * calls commit before it uses such memory: between the two the range is ours
 * to give back, once nobody watches it. The price is that committed memory
 * must read as zeros, so commit clears what was kept.
 *
 * All hooks run with locks of jemalloc held: they take none, allocate nothing
 * and wait for nobody. What they return is never what correctness of lapse
 * hangs on: a release that is not refused is told as any other.
 */
#include "bridges/extent.h"

#include "lapse.h"

/* What is not watched within a kept range, at both ends and between, at most:
 * ranges are looked at in pieces of this size. */
#define PIECE (64ul * 1024)
/* Parts, kept and not, that one extent is cut into at most. */
#define PARTS 32
/* Slots that are looked at for ranges to give back whenever jemalloc purges
 * an extent. */
#define SWEEP 64

struct adapter extent_adapters[KEPT_OWNERS];
_Atomic uint64_t extents_refused, extents_unkept;

static void count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static struct hooks *before(struct hooks *h)
{
    return ((struct adapter *)h)->before;
}

/* relaxed: who asks has memory decommitted by a hook that is over, and the
 * lock of jemalloc under which it was put aside is between the two */
static bool decommits(struct adapter *a)
{
    return atomic_load_explicit(&a->decommits, memory_order_relaxed);
}

static unsigned owner(struct hooks *h)
{
    return (unsigned)((struct adapter *)h - extent_adapters);
}

static bool watched(uintptr_t start, size_t len)
{
    return lapse_watched((void *)start, len) == 1;
}

static enum kept_fate purge(unsigned who, uintptr_t start, size_t len)
{
    struct adapter *a = &extent_adapters[who];
    struct hooks *b = a->before;

    if (!b->purge_forced ||
        b->purge_forced(b, (void *)start, len, 0, len, a->arena))
        return KEPT_STILL;
    return decommits(a) ? KEPT_GONE : KEPT_FORGOTTEN;
}

static void *hook_alloc(struct hooks *h, void *addr, size_t size,
                        size_t alignment, bool *zero, bool *commit,
                        unsigned arena)
{
    return before(h)->alloc(before(h), addr, size, alignment, zero, commit,
                            arena);
}

static bool hook_dalloc(struct hooks *h, void *addr, size_t size,
                        bool committed, unsigned arena)
{
    struct hooks *b = before(h);

    if (!b->dalloc || watched((uintptr_t)addr, size))
        return true;
    return b->dalloc(b, addr, size, committed, arena);
}

/* Cannot refuse. Memory that somebody is giving back right now must not be
 * unmapped, and perhaps mapped anew, under it: it stays then. */
static void hook_destroy(struct hooks *h, void *addr, size_t size,
                         bool committed, unsigned arena)
{
    struct hooks *b = before(h);
    struct kept_claim c;

    if (!kept_claim(&c, (uintptr_t)addr, (uintptr_t)addr + size))
        return;
    kept_take(&c, false);
    if (b->destroy)
        b->destroy(b, addr, size, committed, arena);
}

/* The longest part from `start` on that is watched, or that is not. */
static uintptr_t part_end(uintptr_t start, uintptr_t end, bool *keep)
{
    uintptr_t at = start;
    size_t step = end - start;

    while (at < end) {
        if (step > end - at)
            step = end - at;
        if (!watched(at, step)) {
            if (at > start && *keep)
                break;
            *keep = false;
            at += step;
            step *= 2;
        } else if (step > PIECE) {
            step = (step / 2 + PIECE - 1) / PIECE * PIECE;
        } else {
            if (at > start && !*keep)
                break;
            *keep = true;
            at += step;
        }
    }
    return at;
}

static bool keep(uintptr_t start, uintptr_t end, unsigned who)
{
    uintptr_t at = start, next;

    for (int parts = 1; at < end; at = next, parts++) {
        enum kept_fate fate = KEPT_STILL;
        bool hot = true;

        next = parts < PARTS ? part_end(at, end, &hot) : end;
        if (!hot)
            fate = purge(who, at, next - at);
        if (fate != KEPT_FORGOTTEN &&
            !kept_reserve(at, next, who, fate == KEPT_STILL)) {
            kept_abandon(start, end);
            return false;
        }
    }
    kept_publish(start, end);
    return true;
}

static bool hook_decommit(struct hooks *h, void *addr, size_t size,
                          size_t offset, size_t length, unsigned arena)
{
    uintptr_t start = (uintptr_t)addr + offset;
    struct hooks *b = before(h);

    kept_sweep(SWEEP, owner(h), purge);
    if (watched(start, length)) {
        if (keep(start, start + length, owner(h))) {
            count(&extents_refused);
            return false;
        }
        count(&extents_unkept);
    }
    if (!b->decommit || b->decommit(b, addr, size, offset, length, arena))
        return true;
    atomic_store_explicit(&((struct adapter *)h)->decommits, true,
                          memory_order_relaxed); /* see decommits() */
    return false;
}

/* What is not entered: those before us decommitted it, or it is forgotten and
 * reads as zeros. Where both can be, committing it once more does no harm. */
static bool commit_gaps(struct hooks *h, void *addr, size_t size,
                        struct kept_claim *c, unsigned arena)
{
    struct hooks *b = before(h);
    uintptr_t start, end = c->start;

    if (!decommits((struct adapter *)h))
        return true;
    while (kept_gap(c, end, &start, &end))
        if (!b->commit || b->commit(b, addr, size, start - (uintptr_t)addr,
                                    end - start, arena))
            return false;
    return true;
}

/* Failing is harmless: jemalloc puts the extent back and takes another. */
static bool hook_commit(struct hooks *h, void *addr, size_t size,
                        size_t offset, size_t length, unsigned arena)
{
    uintptr_t start = (uintptr_t)addr + offset;
    struct kept_claim c;

    if (!kept_claim(&c, start, start + length))
        return true;
    if (c.bytes < length && !commit_gaps(h, addr, size, &c, arena)) {
        kept_unclaim(&c);
        return true;
    }
    kept_take(&c, true);
    return false;
}

/* Lazily purged contents are anybody's guess, so nothing at all is a purge.
 * The extent is muzzy then, which can be used again without being cleared. */
static bool hook_purge_lazy(struct hooks *h, void *addr, size_t size,
                            size_t offset, size_t length, unsigned arena)
{
    struct hooks *b = before(h);

    kept_sweep(SWEEP, owner(h), purge);
    if (watched((uintptr_t)addr + offset, length)) {
        count(&extents_refused);
        return false;
    }
    return !b->purge_lazy ||
           b->purge_lazy(b, addr, size, offset, length, arena);
}

/* Asked after decommit: what was not kept there goes. */
static bool hook_purge_forced(struct hooks *h, void *addr, size_t size,
                              size_t offset, size_t length, unsigned arena)
{
    struct hooks *b = before(h);

    return b->purge_forced(b, addr, size, offset, length, arena);
}

static bool hook_split(struct hooks *h, void *addr, size_t size, size_t first,
                       size_t second, bool committed, unsigned arena)
{
    struct hooks *b = before(h);

    return b->split(b, addr, size, first, second, committed, arena);
}

static bool hook_merge(struct hooks *h, void *addr, size_t size, void *second,
                       size_t second_size, bool committed, unsigned arena)
{
    struct hooks *b = before(h);

    return b->merge(b, addr, size, second, second_size, committed, arena);
}

/* jemalloc looks whether these are there before it prepares to call them. */
void extent_adapt(struct adapter *a, struct hooks *b, unsigned arena)
{
    a->before = b;
    a->arena = arena;
    a->hooks = (struct hooks){
        .alloc = hook_alloc,
        .dalloc = b->dalloc ? hook_dalloc : NULL,
        .destroy = hook_destroy,
        .commit = hook_commit,
        .decommit = hook_decommit,
        .purge_lazy = hook_purge_lazy,
        .purge_forced = b->purge_forced ? hook_purge_forced : NULL,
        .split = b->split ? hook_split : NULL,
        .merge = b->merge ? hook_merge : NULL,
    };
}

bool extent_adapted(const struct hooks *h)
{
    return h->alloc == hook_alloc;
}

size_t extent_purge(void)
{
    return kept_sweep(KEPT_MAX, KEPT_OWNERS, purge);
}
