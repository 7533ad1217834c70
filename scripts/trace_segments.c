/* SPDX-License-Identifier: BSD-3-Clause */
/* Which module had an address, when. */
#include <stdlib.h>
#include <string.h>

#include "trace_impl.h"

static const uint8_t *area_at(const struct trace *t, uint64_t at, size_t bytes)
{
    if (at > TRACE_SEGMENT_BYTES || TRACE_SEGMENT_BYTES - at < bytes)
        return NULL;
    return trace_map_at(&t->map, t->header.segments_at + at, bytes);
}

static bool room_for_one(struct trace_segments *s)
{
    size_t room = s->room ? 2 * s->room : 64;
    void *entry, *at;

    if (s->count < s->room)
        return true;
    entry = realloc(s->entry, room * sizeof(*s->entry));
    if (entry)
        s->entry = entry;
    at = realloc(s->at, room * sizeof(*s->at));
    if (at)
        s->at = at;
    if (!entry || !at)
        return false;
    s->room = room;
    return true;
}

/* A copy of the entry there, checked; NULL: it makes no sense. */
static struct trace_segment *segment_copy(const struct trace *t, uint64_t at,
                                          uint64_t end)
{
    struct trace_segment *copy;
    const uint8_t *source = area_at(t, at, sizeof(*copy));
    uint64_t word;
    uint32_t bytes;

    if (!source || end - at <= sizeof(*copy))
        return NULL;
    word = __atomic_load_n((const uint64_t *)source, __ATOMIC_RELAXED);
    bytes = (uint32_t)word;
    if (bytes <= sizeof(*copy) || bytes % 8 || bytes > end - at ||
        !area_at(t, at, bytes))
        return NULL;
    copy = malloc(bytes);
    if (!copy)
        return NULL;
    trace_copy(copy, source, bytes);
    if (copy->bytes == bytes && copy->start < copy->end &&
        copy->build_id_len <= sizeof(copy->build_id) &&
        memchr(copy->name, 0, bytes - sizeof(*copy)))
        return copy;
    free(copy);
    return NULL;
}

/* New entries, and the ends of those we have. */
static void segments_read(struct trace *t)
{
    struct trace_segments *s = &t->segments;
    uint64_t end = t->header.segments_len;

    for (size_t i = 0; i < s->count; i++) {
        const uint8_t *source = area_at(t, s->at[i], sizeof(**s->entry));

        if (source)
            s->entry[i]->unloaded = __atomic_load_n(
                (const uint64_t *)(source + offsetof(struct trace_segment,
                                                     unloaded)),
                __ATOMIC_RELAXED);
    }
    while (s->parsed < end && !s->broken) {
        struct trace_segment *copy = segment_copy(t, s->parsed, end);

        if (!copy || !room_for_one(s)) {
            free(copy);
            s->broken = true;
            t->damaged++;
            return;
        }
        s->entry[s->count] = copy;
        s->at[s->count++] = (uint32_t)s->parsed;
        s->parsed += copy->bytes;
    }
}

static bool had(const struct trace_segment *s, uint64_t address,
                uint64_t ticks)
{
    return address >= s->start && address < s->end && ticks >= s->loaded &&
           (!s->unloaded || ticks < s->unloaded);
}

/* acquire: what a new epoch brought is there. */
static uint64_t trace_epoch(const struct trace *t)
{
    const struct trace_header *h = (const void *)t->map.bytes;

    return __atomic_load_n(&h->epoch, __ATOMIC_ACQUIRE);
}

/*
 * Of two that seem to have had it, the one that came later: nothing is mapped
 * where something still is, so the end of the other one was not seen.
 */
const struct trace_segment *trace_segment(struct trace *t, uint64_t address,
                                          uint64_t ticks)
{
    struct trace_segments *s = &t->segments;
    const struct trace_segment *found = NULL;

    if (trace_epoch(t) != s->epoch || !s->parsed) {
        trace_refresh(t);
        s->epoch = t->header.epoch;
        segments_read(t);
    }
    for (size_t i = 0; i < s->count; i++)
        if (had(s->entry[i], address, ticks) &&
            (!found || s->entry[i]->loaded >= found->loaded))
            found = s->entry[i];
    return found;
}

void trace_segments_free(struct trace_segments *segments)
{
    for (size_t i = 0; i < segments->count; i++)
        free(segments->entry[i]);
    free(segments->entry);
    free(segments->at);
}
