/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The records of the rings, while others write there (R1 in trace_file.h), and
 * all rings merged by time.
 */
#include <stdlib.h>
#include <string.h>

#include "trace_impl.h"

enum { ROOM = 32 << 10 }; /* copied at once; more for a longer record */
/* No honest ring comes that far; and no sum of positions overflows. */
#define POSITION_MAX ((uint64_t)1 << 62)

/* Its place was checked by trace_open(). */
static const struct trace_head *head_of(const struct trace *t, uint32_t ring)
{
    return (const struct trace_head *)(t->map.bytes + t->header.heads_at) +
           ring;
}

/* What the block of a position has left from there on. */
static uint64_t block_left(const struct trace *t, uint64_t position)
{
    return t->header.block_bytes - position % t->header.block_bytes;
}

/* acquire P4: pairs with P3 of the writer (trace_ring.c of the library): the
 * bytes before it are written. */
static uint64_t end_of(const struct trace *t, uint32_t ring)
{
    uint64_t end = __atomic_load_n(&head_of(t, ring)->end, __ATOMIC_ACQUIRE);

    return end > POSITION_MAX ? 0 : end & ~(uint64_t)7;
}

/* After the bytes were copied: P2, an acquire fence that pairs with the
 * writer's release fence behind P1: if a copied byte is of what it wrote after
 * that, we see the `begin` of P1 or a later one. */
static uint64_t begin_of(const struct trace *t, uint32_t ring)
{
    uint64_t begin;

    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    begin = __atomic_load_n(&head_of(t, ring)->begin, __ATOMIC_RELAXED);
    return begin > POSITION_MAX ? POSITION_MAX : begin;
}

static bool overtaken(const struct trace *t, uint64_t at, uint64_t begin)
{
    return begin > at && begin - at > t->header.ring_bytes;
}

/* To a block that is whole yet, and some more if that was too slow before. */
static uint64_t next_block(const struct trace *t, uint64_t begin,
                           unsigned tries)
{
    uint64_t block = t->header.block_bytes;

    return (begin - t->header.ring_bytes + block - 1) / block * block +
           tries * block;
}

static bool ring_room(struct trace_ring *r, size_t bytes)
{
    uint8_t *more;

    if (r->room >= bytes)
        return true;
    if (bytes < ROOM)
        bytes = ROOM;
    more = realloc(r->bytes, bytes);
    if (!more)
        return false;
    r->bytes = more;
    r->room = bytes;
    return true;
}

/*
 * Copies what is in the ring from r->at on (to the end of its block, and as
 * much as there is room for), or from a later block if that was overwritten.
 * False: nothing is there now.
 */
static bool ring_fill(struct trace *t, uint32_t ring, size_t room)
{
    struct trace_ring *r = &t->rings[ring];
    const uint8_t *source;
    uint64_t begin, end, place, there;

    t->look = true;
    r->from = r->to = r->at;
    if (!ring_room(r, room))
        return false;
    for (unsigned tries = 0; tries < TRACE_BLOCKS; tries++) {
        begin = begin_of(t, ring);
        if (overtaken(t, r->at, begin))
            r->at = next_block(t, begin, tries);
        there = end = end_of(t, ring);
        if (r->at >= end)
            break;
        if (end - r->at > r->room)
            end = r->at + r->room;
        if (end - r->at > block_left(t, r->at))
            end = r->at + block_left(t, r->at);
        place = t->header.rings_at + ring * t->header.ring_bytes +
                r->at % t->header.ring_bytes;
        source = trace_map_at(&t->map, place, end - r->at);
        if (!source) { /* the file was cut: nothing more of this block */
            t->damaged++;
            r->at += block_left(t, r->at);
            continue;
        }
        trace_copy(r->bytes, source, end - r->at);
        begin = begin_of(t, ring);
        if (overtaken(t, r->at, begin))
            continue;
        if (begin < there) { /* no honest one: it would not end in our time */
            t->damaged++;
            r->at = there;
            break;
        }
        r->from = r->at;
        r->to = end;
        return true;
    }
    r->from = r->to = r->at;
    return false;
}

/* Bytes that a record of this kind has at least. */
static size_t least_bytes(uint16_t kind)
{
    switch (kind) {
    case 0:
        return SIZE_MAX;
    case TRACE_CLOCK:
        return sizeof(struct trace_clock_record);
    case TRACE_RELEASE:
        return sizeof(struct trace_release);
    case TRACE_PUBLISH:
    case TRACE_DELIVER:
    case TRACE_OVERFLOW:
    case TRACE_WATCH:
    case TRACE_UNWATCH:
        return sizeof(struct trace_told);
    case TRACE_USER:
        return sizeof(struct trace_user);
    default: /* of a later library: its beginning is known */
        return sizeof(struct trace_record);
    }
}

const struct trace_stack *trace_stack_of(const struct trace_record *r,
                                         const uint8_t **memory)
{
    const struct trace_stack *stack;

    if (r->kind != TRACE_RELEASE || !(r->flags & TRACE_HAS_STACK) ||
        r->bytes < sizeof(struct trace_release) + sizeof(*stack))
        return NULL;
    stack = (const void *)((const struct trace_release *)r + 1);
    if (stack->bytes >
        r->bytes - sizeof(struct trace_release) - sizeof(*stack))
        return NULL;
    *memory = (const uint8_t *)(stack + 1);
    return stack;
}

/* Does it hold what its kind says? Its bytes are all there. */
static bool record_good(const struct trace_record *record, uint64_t next)
{
    const struct trace_user *user = (const void *)record;
    const uint8_t *memory;

    if (record->bytes < least_bytes(record->kind))
        return false;
    if (record->kind == TRACE_CLOCK)
        return true;
    if (record->number < next)
        return false;
    if (record->kind == TRACE_USER)
        return user->len <= record->bytes - sizeof(*user);
    return record->kind != TRACE_RELEASE ||
           !(record->flags & TRACE_HAS_STACK) ||
           trace_stack_of(record, &memory);
}

/* Steps behind something that has no number. */
static void ring_skip(struct trace *t, struct trace_ring *r, uint64_t bytes,
                      bool damaged)
{
    t->damaged += damaged;
    r->at += bytes;
    if (r->at > r->to)
        r->from = r->to = r->at;
}

/* The record at r->at, which is wholly in the copy; NULL: none is there now. */
static const struct trace_record *ring_peek(struct trace *t, uint32_t ring)
{
    struct trace_ring *r = &t->rings[ring];

    for (;;) {
        const struct trace_record *record;
        uint64_t rest;

        if (r->at >= r->to && !ring_fill(t, ring, ROOM))
            return NULL;
        record = (const void *)(r->bytes + (r->at - r->from));
        rest = block_left(t, r->at);
        /* The copy has whole words: at least bytes, kind, flags. */
        if (record->kind == TRACE_PAD) {
            ring_skip(t, r, rest, false);
        } else if (record->bytes < sizeof(*record) || record->bytes % 8 ||
                   record->bytes > rest) {
            ring_skip(t, r, rest, true);
        } else if (record->bytes > r->to - r->at) {
            if (r->at == r->from && r->room >= record->bytes)
                ring_skip(t, r, rest, true); /* runs over `end` */
            else if (!ring_fill(t, ring, record->bytes))
                return NULL;
        } else if (!record_good(record, r->next)) {
            ring_skip(t, r, record->bytes, true);
        } else if (record->kind == TRACE_CLOCK) {
            trace_pairs_add(&t->pairs, record->ticks,
                            ((const struct trace_clock_record *)record)
                                ->monotonic);
            ring_skip(t, r, record->bytes, false);
        } else {
            return record;
        }
    }
}

static void heap_down(struct trace *t, size_t i)
{
    for (size_t child; (child = 2 * i + 1) < t->queued; i = child) {
        struct trace_queued swap = t->heap[i];

        if (child + 1 < t->queued &&
            t->heap[child + 1].ticks < t->heap[child].ticks)
            child++;
        if (swap.ticks <= t->heap[child].ticks)
            return;
        t->heap[i] = t->heap[child];
        t->heap[child] = swap;
    }
}

static void heap_add(struct trace *t, uint32_t ring, uint64_t ticks)
{
    size_t i = t->queued++;

    for (; i && t->heap[(i - 1) / 2].ticks > ticks; i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = (struct trace_queued){ticks, ring};
    t->rings[ring].queued = true;
}

/* Its writer forked in the middle of a record. */
static bool unreadable(const struct trace *t, uint32_t ring)
{
    return __atomic_load_n(&head_of(t, ring)->off, __ATOMIC_RELAXED) ==
           TRACE_FORKED;
}

/* Queues the rings in which there is something new. */
static void look(struct trace *t)
{
    for (uint32_t i = 0; i < t->header.rings; i++) {
        const struct trace_record *record;

        if (t->rings[i].queued || end_of(t, i) <= t->rings[i].at ||
            unreadable(t, i))
            continue;
        record = ring_peek(t, i);
        if (record)
            heap_add(t, i, record->ticks);
    }
    t->look = false;
}

/* Behind what was given last, which lives no longer. */
static void advance(struct trace *t)
{
    struct trace_ring *r = &t->rings[t->heap[0].ring];
    const struct trace_record *record;

    r->next = t->given->number + 1;
    r->at += t->given->bytes;
    t->given = NULL;
    record = ring_peek(t, t->heap[0].ring);
    if (record) {
        t->heap[0].ticks = record->ticks;
    } else {
        r->queued = false;
        t->heap[0] = t->heap[--t->queued];
    }
    heap_down(t, 0);
}

const struct trace_record *trace_next(struct trace *t, unsigned *ring)
{
    const struct trace_ring *r;

    if (t->given)
        advance(t);
    if (t->look || !t->queued)
        look(t);
    if (!t->queued)
        return NULL;
    r = &t->rings[t->heap[0].ring];
    t->given = (const void *)(r->bytes + (r->at - r->from));
    t->read++;
    t->overwritten += t->given->number - r->next;
    if (ring)
        *ring = t->heap[0].ring;
    return t->given;
}

/* The clock of each block that is there, so that times are known from the
 * first record on. */
static void clocks(struct trace *t, uint32_t ring)
{
    uint64_t end = end_of(t, ring), begin = begin_of(t, ring), at = 0;
    struct trace_clock_record clock;

    if (overtaken(t, 0, begin))
        at = next_block(t, begin, 0);
    for (unsigned i = 0; i < TRACE_BLOCKS && at < end; i++) {
        const void *source =
            trace_map_at(&t->map,
                         t->header.rings_at + ring * t->header.ring_bytes +
                             at % t->header.ring_bytes,
                         sizeof(clock));

        if (source && end - at >= sizeof(clock)) {
            trace_copy(&clock, source, sizeof(clock));
            if (!overtaken(t, at, begin_of(t, ring)) &&
                clock.head.kind == TRACE_CLOCK)
                trace_pairs_add(&t->pairs, clock.head.ticks, clock.monotonic);
        }
        at += t->header.block_bytes;
    }
}

bool trace_rings_open(struct trace *t)
{
    t->rings = calloc(t->header.rings, sizeof(*t->rings));
    t->heap = calloc(t->header.rings, sizeof(*t->heap));
    if (!t->rings || !t->heap)
        return false;
    for (uint32_t i = 0; i < t->header.rings; i++)
        if (!unreadable(t, i))
            clocks(t, i);
    return true;
}

void trace_rings_close(struct trace *t)
{
    for (uint32_t i = 0; t->rings && i < t->header.rings; i++)
        free(t->rings[i].bytes);
    free(t->rings);
    free(t->heap);
}
