/* SPDX-License-Identifier: BSD-3-Clause */
/* A plain reader of a trace that nobody writes now, for tests of the writer:
 * by invariant R1 of shim/trace_file.h and nothing else. */
#ifndef LAPSE_TESTS_TRACE_RING_H
#define LAPSE_TESTS_TRACE_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/trace_file.h"

typedef void trace_seen(unsigned ring, const struct trace_record *r,
                        void *arg);

static inline const struct trace_head *
trace_ring_head(const struct trace_header *h, unsigned ring)
{
    return (const struct trace_head *)((const uint8_t *)h + h->heads_at) +
           ring;
}

/* Calls seen for each record that is there. False: the ring is not well
 * made. *first: the number of the first one. */
static inline bool trace_ring_each(const struct trace_header *h, unsigned ring,
                                   trace_seen *seen, void *arg,
                                   uint64_t *first)
{
    const struct trace_head *head = trace_ring_head(h, ring);
    const uint8_t *bytes =
        (const uint8_t *)h + h->rings_at + ring * h->ring_bytes;
    uint64_t at = 0, number = 0;
    bool any = false;

    if (head->begin > h->ring_bytes)
        at = (head->begin - h->ring_bytes + h->block_bytes - 1) /
             h->block_bytes * h->block_bytes;
    *first = head->next;
    while (at < head->end) {
        const struct trace_record *r =
            (const struct trace_record *)(bytes + at % h->ring_bytes);
        uint64_t left = h->block_bytes - at % h->block_bytes;

        if (r->bytes < sizeof(*r) || r->bytes % 32 || r->bytes > left ||
            (left == h->block_bytes && r->kind != TRACE_CLOCK))
            return false;
        at += r->bytes;
        if (r->kind == TRACE_PAD || r->kind == TRACE_CLOCK)
            continue;
        if (any && r->number != number)
            return false;
        if (!any)
            *first = r->number;
        any = true;
        number = r->number + 1;
        seen(ring, r, arg);
    }
    return at == head->end && (!any || number == head->next);
}

#endif
