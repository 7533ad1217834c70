/* SPDX-License-Identifier: BSD-3-Clause */
#include "bridges/kept.h"

#include <stdatomic.h>
#include <string.h>

#include "lapse.h"

#define PAGE 4096ul

/* An entry: page number 35 bits, pages 16, owner 11, resident, busy. */
#define BUSY 1ul
#define RESIDENT 2ul
#define OWNER_SHIFT 2
#define PAGES_SHIFT 13
#define START_SHIFT 29
#define PAGES_MOST 0xfffful
#define RESERVED BUSY /* no page: a slot taken for later */

static _Atomic uint64_t table[KEPT_MAX];
/* Slots from here on were never used. */
static _Atomic unsigned used;
/* Counts entries that went to another slot: see kept_claim. */
static _Atomic unsigned moved;

static uintptr_t start_of(uint64_t w)
{
    return (w >> START_SHIFT) * PAGE;
}

static uintptr_t end_of(uint64_t w)
{
    return start_of(w) + (w >> PAGES_SHIFT & PAGES_MOST) * PAGE;
}

static unsigned owner_of(uint64_t w)
{
    return w >> OWNER_SHIFT & (KEPT_OWNERS - 1);
}

/* The same entry, of other bounds. */
static uint64_t with_bounds(uint64_t w, uintptr_t start, uintptr_t end)
{
    return (w & ((1ul << PAGES_SHIFT) - 1)) |
           (end - start) / PAGE << PAGES_SHIFT | start / PAGE << START_SHIFT;
}

static bool overlaps(uint64_t w, uintptr_t start, uintptr_t end)
{
    return start_of(w) < end && start < end_of(w);
}

/* K0: what an entry says of its range is handed on with it. */
static uint64_t look(unsigned i)
{
    return atomic_load_explicit(&table[i], memory_order_acquire);
}

/* K1, with K0 and K2 */
static void set(unsigned i, uint64_t w)
{
    atomic_store_explicit(&table[i], w, memory_order_release);
}

static bool swap(unsigned i, uint64_t old, uint64_t w)
{
    /* K2; relaxed on failure: the caller gives up or looks again */
    return atomic_compare_exchange_strong_explicit(
        &table[i], &old, w, memory_order_acq_rel, memory_order_relaxed);
}

/* relaxed: who has a range to ask for got it from jemalloc, by whose lock
 * all that was stored when it was entered is visible */
static unsigned slots_used(void)
{
    return atomic_load_explicit(&used, memory_order_relaxed);
}

/* KEPT_MAX when there is none. */
static unsigned slot_take(uint64_t w)
{
    for (unsigned i = 0; i < KEPT_MAX; i++) {
        unsigned top = slots_used();

        if (look(i) || !swap(i, 0, w))
            continue;
        while (top <= i && !atomic_compare_exchange_weak_explicit(
                               &used, &top, i + 1, memory_order_relaxed,
                               memory_order_relaxed))
            ;
        return i;
    }
    return KEPT_MAX;
}

bool kept_reserve(uintptr_t start, uintptr_t end, unsigned owner,
                  bool resident)
{
    uint64_t w = (uint64_t)owner << OWNER_SHIFT | BUSY |
                 (resident ? RESIDENT : 0);

    while (start < end) {
        size_t len = end - start;

        if (len > PAGES_MOST * PAGE)
            len = PAGES_MOST * PAGE;
        if (slot_take(with_bounds(w, start, start + len)) == KEPT_MAX)
            return false;
        start += len;
    }
    return true;
}

/* What was reserved in [start, end) is busy with this thread. */
static void unreserve(uintptr_t start, uintptr_t end, bool drop)
{
    unsigned top = slots_used();

    for (unsigned i = 0; i < top; i++) {
        uint64_t w = look(i);

        if (overlaps(w, start, end))
            set(i, drop ? 0 : w & ~BUSY);
    }
}

void kept_publish(uintptr_t start, uintptr_t end)
{
    unreserve(start, end, false);
}

void kept_abandon(uintptr_t start, uintptr_t end)
{
    unreserve(start, end, true);
}

/* The first slot at or after i that is claimed; c->top when there is none. */
static unsigned next_ours(const struct kept_claim *c, unsigned i)
{
    while (i < c->top) {
        uint64_t rest = c->ours[i / 64] >> (i % 64);

        if (rest)
            return i + (unsigned)__builtin_ctzll(rest);
        i = (i / 64 + 1) * 64;
    }
    return c->top;
}

#define EACH_CLAIMED(c, i) \
    unsigned i = next_ours(c, 0); i < (c)->top; i = next_ours(c, i + 1)

void kept_unclaim(struct kept_claim *c)
{
    for (EACH_CLAIMED(c, i))
        set(i, look(i) & ~BUSY);
    if (c->spare < KEPT_MAX)
        set(c->spare, 0);
}

/* False: give up. */
static bool claim_all(struct kept_claim *c)
{
    for (unsigned i = 0; i < c->top; i++) {
        uint64_t w = look(i);
        uintptr_t start, end;

        if (!overlaps(w, c->start, c->end))
            continue;
        if (w & BUSY || !swap(i, w, w | BUSY))
            return false;
        c->ours[i / 64] |= 1ul << (i % 64);
        start = start_of(w) > c->start ? start_of(w) : c->start;
        end = end_of(w) < c->end ? end_of(w) : c->end;
        c->bytes += end - start;
        if (start_of(w) < c->start && end_of(w) > c->end &&
            (c->spare = slot_take(RESERVED)) == KEPT_MAX)
            return false;
    }
    return true;
}

/*
 * Only the range is this thread's, an entry may reach beyond it: jemalloc
 * split what it had decommitted as a whole. So another thread may cut the
 * same entry meanwhile, and move the part with our range to a slot that we
 * have passed. It counts in `moved` (M1) between storing the part there and
 * shrinking the entry (K1): who saw the entry shrunk (K0) sees the count.
 */
bool kept_claim(struct kept_claim *c, uintptr_t start, uintptr_t end)
{
    /* M2, with M1 */
    unsigned before = atomic_load_explicit(&moved, memory_order_acquire);

    c->start = start;
    c->end = end;
    c->bytes = 0;
    c->spare = KEPT_MAX;
    c->top = slots_used();
    memset(c->ours, 0, (c->top + 63) / 64 * sizeof(*c->ours));
    if (claim_all(c) &&
        before == atomic_load_explicit(&moved, memory_order_acquire))
        return true;
    kept_unclaim(c);
    return false;
}

static void take_one(struct kept_claim *c, unsigned i, bool zero)
{
    uint64_t w = look(i) & ~BUSY;
    uintptr_t start = start_of(w), end = end_of(w);
    uintptr_t a = start > c->start ? start : c->start;
    uintptr_t b = end < c->end ? end : c->end;

    if (zero && w & RESIDENT)
        memset((void *)a, 0, b - a);
    if (start < a && b < end) {
        set(c->spare, with_bounds(w, b, end));
        /* M1 */
        atomic_fetch_add_explicit(&moved, 1, memory_order_acq_rel);
        set(i, with_bounds(w, start, a));
    } else if (start < a) {
        set(i, with_bounds(w, start, a));
    } else {
        set(i, b < end ? with_bounds(w, b, end) : 0);
    }
}

void kept_take(struct kept_claim *c, bool zero)
{
    for (EACH_CLAIMED(c, i))
        take_one(c, i, zero);
}

/* Where entries that follow one another from `from` on end. */
static uintptr_t run_end(const struct kept_claim *c, uintptr_t from)
{
    uintptr_t was;

    do {
        was = from;
        for (EACH_CLAIMED(c, i)) {
            uint64_t w = look(i);

            if (start_of(w) <= from && from < end_of(w))
                from = end_of(w);
        }
    } while (from != was);
    return from;
}

bool kept_gap(struct kept_claim *c, uintptr_t from, uintptr_t *start,
              uintptr_t *end)
{
    from = run_end(c, from);
    if (from >= c->end)
        return false;
    *start = from;
    *end = c->end;
    for (EACH_CLAIMED(c, i)) {
        uint64_t w = look(i);

        if (overlaps(w, from, *end))
            *end = start_of(w);
    }
    return true;
}

static size_t sweep_one(unsigned i, unsigned owner, kept_purge *purge)
{
    uint64_t w = look(i);
    enum kept_fate fate;
    size_t len = end_of(w) - start_of(w);

    if (!(w & RESIDENT) || w & BUSY ||
        (owner < KEPT_OWNERS && owner_of(w) != owner) ||
        lapse_watched((void *)start_of(w), len) == 1 || !swap(i, w, w | BUSY))
        return 0;
    fate = purge(owner_of(w), start_of(w), len);
    set(i, fate == KEPT_FORGOTTEN ? 0
           : fate == KEPT_GONE    ? w & ~RESIDENT
                                  : w);
    return fate == KEPT_STILL ? 0 : len;
}

size_t kept_sweep(unsigned slots, unsigned owner, kept_purge *purge)
{
    static _Atomic unsigned next; /* relaxed: where to go on, roughly */
    unsigned top = slots_used();
    unsigned i = atomic_load_explicit(&next, memory_order_relaxed);
    size_t bytes = 0;

    if (slots > top)
        slots = top;
    for (unsigned n = 0; n < slots; n++, i++) {
        if (i >= top)
            i = 0;
        bytes += sweep_one(i, owner, purge);
    }
    atomic_store_explicit(&next, i, memory_order_relaxed);
    return bytes;
}

void kept_sum(struct kept_sum *out)
{
    unsigned top = slots_used();

    *out = (struct kept_sum){0, 0};
    for (unsigned i = 0; i < top; i++) {
        uint64_t w = look(i);

        out->ranges += (w & RESIDENT) != 0;
        out->bytes += w & RESIDENT ? end_of(w) - start_of(w) : 0;
    }
}

/* What was busy may have lost its pages or not: resident is the safe word,
 * it is cleared before use. */
void kept_fork_child(void)
{
    unsigned top = slots_used();

    for (unsigned i = 0; i < top; i++) {
        uint64_t w = look(i);

        if (w & BUSY)
            set(i, end_of(w) > start_of(w) ? (w & ~BUSY) | RESIDENT : 0);
    }
}
