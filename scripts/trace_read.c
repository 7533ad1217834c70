/* SPDX-License-Identifier: BSD-3-Clause */
/* A trace as a whole: what its header says, and event types. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace_impl.h"

enum { BLOCK_MIN = 512, BLOCK_MAX = 1 << 30 };

static void terminate(char *text, size_t size)
{
    text[size - 1] = 0;
}

void trace_refresh(struct trace *t)
{
    struct trace_header now, *h = &t->header;

    /* acquire: the segments that the numbers speak of are there. */
    trace_copy(&now, t->map.bytes, sizeof(now));
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    /* Only what counts: the places were checked, and must stay the same. */
    h->types = now.types;
    h->segments_len = now.segments_len;
    h->segments_lost = now.segments_lost;
    h->epoch = now.epoch;
    h->lost = now.lost;
    h->stackless = now.stackless;
    h->ended = now.ended;
    h->stop = now.stop;
    memcpy(h->name, now.name, sizeof(h->name));
    terminate(h->name, sizeof(h->name));
}

/* Is all that the places speak of in the file, the rings perhaps not? */
static bool places_good(const struct trace *t)
{
    const struct trace_header *h = &t->header;

    return h->header_bytes >= sizeof(*h) && h->rings &&
           h->rings <= TRACE_RINGS && h->block_bytes >= BLOCK_MIN &&
           h->block_bytes <= BLOCK_MAX && h->block_bytes % 8 == 0 &&
           h->ring_bytes == (uint64_t)h->block_bytes * TRACE_BLOCKS &&
           !((h->types_at | h->segments_at | h->heads_at | h->rings_at) % 8) &&
           trace_map_at(&t->map, h->types_at,
                        TRACE_TYPES * sizeof(struct trace_type)) &&
           trace_map_at(&t->map, h->segments_at, TRACE_SEGMENT_BYTES) &&
           trace_map_at(&t->map, h->heads_at,
                        h->rings * sizeof(struct trace_head)) &&
           h->rings_at <= t->map.size;
}

/* NULL, or why not. */
static const char *header_read(struct trace *t)
{
    struct trace_header *h = &t->header;
    uint64_t magic;

    /* acquire: the magic is stored last. */
    magic = __atomic_load_n((const uint64_t *)t->map.bytes, __ATOMIC_ACQUIRE);
    trace_copy(h, t->map.bytes, sizeof(*h));
    terminate(h->name, sizeof(h->name));
    terminate(h->boot, sizeof(h->boot));
    terminate(h->program, sizeof(h->program));
    terminate(h->arguments, sizeof(h->arguments));
    if (!magic)
        return "is not a trace of lapse, or one that was never begun";
    if (magic != TRACE_MAGIC)
        return "is not a trace of lapse";
    if (h->version != TRACE_VERSION)
        return "is a trace by another version of lapse";
    if (!places_good(t))
        return "is a trace of lapse that is cut off or damaged";
    return NULL;
}

struct trace *trace_open(const char *path, const char **why)
{
    struct trace *t = calloc(1, sizeof(*t));

    if (!t) {
        *why = strerror(ENOMEM);
        return NULL;
    }
    if (!trace_map_open(&t->map, path, why)) {
        free(t);
        return NULL;
    }
    *why = header_read(t);
    if (!*why) {
        const struct trace_header *h = &t->header;

        trace_pairs_add(&t->pairs, h->start.ticks, h->start.monotonic);
        trace_pairs_add(&t->pairs, h->stop.ticks, h->stop.monotonic);
        t->types = calloc(TRACE_TYPES, sizeof(*t->types));
        if (!t->types || !trace_rings_open(t))
            *why = strerror(ENOMEM);
    }
    if (*why) {
        trace_close(t);
        return NULL;
    }
    trace_pairs_add_now(&t->pairs, t->header.boot);
    return t;
}

void trace_close(struct trace *t)
{
    if (!t)
        return;
    trace_rings_close(t);
    trace_segments_free(&t->segments);
    free(t->types);
    trace_map_close(&t->map);
    free(t);
}

const struct trace_header *trace_head(const struct trace *t)
{
    return &t->header;
}

uint64_t trace_read(const struct trace *t)
{
    return t->read;
}

uint64_t trace_overwritten(const struct trace *t)
{
    return t->overwritten;
}

uint64_t trace_damaged(const struct trace *t)
{
    return t->damaged;
}

uint64_t trace_ns(struct trace *t, uint64_t ticks)
{
    uint64_t ns = trace_pairs_ns(&t->pairs, ticks);
    uint64_t start = t->header.start.monotonic;

    return ns > start ? ns - start : 0;
}

uint64_t trace_realtime(struct trace *t, uint64_t ticks)
{
    return t->header.start.realtime + trace_ns(t, ticks);
}

/* Once ready it does not change. */
const struct trace_type *trace_type(const struct trace *t, uint32_t index)
{
    const struct trace_type *source;
    struct trace_type *copy;

    if (index >= TRACE_TYPES)
        return NULL;
    copy = &t->types[index];
    if (copy->ready)
        return copy;
    source = (const struct trace_type *)(t->map.bytes + t->header.types_at) +
             index;
    /* acquire: pairs with the release of who registered the type */
    if (__atomic_load_n(&source->ready, __ATOMIC_ACQUIRE) != 1)
        return NULL;
    trace_copy(copy, source, sizeof(*copy));
    copy->ready = 1;
    terminate(copy->name, sizeof(copy->name));
    terminate(copy->layout, sizeof(copy->layout));
    return copy;
}
