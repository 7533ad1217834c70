/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of the reader (trace.h) share. */
#ifndef SCRIPTS_TRACE_IMPL_H
#define SCRIPTS_TRACE_IMPL_H

#include "trace.h"

/*
 * A file mapped to be read. Whoever cuts it while we read must not end us by
 * SIGBUS: a page that is gone reads as zeros, which is no sense anywhere, so
 * whoever reads it stops there.
 */
struct trace_map {
    struct trace_map *next;
    const uint8_t *bytes;
    size_t size;
};
bool trace_map_open(struct trace_map *map, const char *path, const char **why);
void trace_map_close(struct trace_map *map);

/* NULL: not all of it is in the file. */
static inline const void *trace_map_at(const struct trace_map *map,
                                       uint64_t at, uint64_t size)
{
    if (at > map->size || map->size - at < size)
        return NULL;
    return map->bytes + at;
}

/* What lies in the file is written by another process at any time: each word
 * once, by one load. relaxed: order is the matter of who calls. */
void trace_copy(void *to, const void *from, size_t bytes);

/* Pairs of ticks and CLOCK_MONOTONIC, ascending in both. */
#define TRACE_PAIRS 1024
struct trace_pair {
    uint64_t ticks, ns;
};
struct trace_pairs {
    struct trace_pair pair[TRACE_PAIRS];
    size_t count;
};
void trace_pairs_add(struct trace_pairs *pairs, uint64_t ticks, uint64_t ns);
/* The pair of this moment, if the trace is of this boot. */
void trace_pairs_add_now(struct trace_pairs *pairs, const char *boot);
uint64_t trace_pairs_ns(const struct trace_pairs *pairs, uint64_t ticks);

/* The segments met so far; they stay where they are until the end. */
struct trace_segments {
    struct trace_segment **entry;
    uint32_t *at; /* of each, where it lies in the area */
    size_t count, room;
    uint64_t parsed; /* bytes of the area */
    uint64_t epoch;
    bool broken; /* what comes behind `parsed` makes no sense */
};
void trace_segments_free(struct trace_segments *segments);

/* A ring, and a copy of some of it: the bytes of [from, to). */
struct trace_ring {
    uint64_t at;   /* position of the record to come */
    uint64_t next; /* its number, unless some were overwritten */
    uint64_t from, to;
    uint8_t *bytes;
    size_t room;
    bool queued; /* in `heap` */
};
struct trace_queued {
    uint64_t ticks;
    uint32_t ring;
};

struct trace {
    struct trace_map map;
    struct trace_header header;
    struct trace_type *types; /* copies */
    struct trace_pairs pairs;
    struct trace_segments segments;
    struct trace_ring *rings;
    struct trace_queued *heap; /* by ticks, the earliest first */
    size_t queued;
    bool look;            /* for news in rings that are not queued */
    const struct trace_record *given; /* of the first ring in the heap */
    uint64_t read, overwritten, damaged;
};
/* Frees what trace_rings_open() got. */
bool trace_rings_open(struct trace *t);
void trace_rings_close(struct trace *t);

#endif
