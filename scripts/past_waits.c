/* SPDX-License-Identifier: BSD-3-Clause */
/* How long each record waited until its subscriber was told of it. */
#include <stdlib.h>

#include "past.h"

static int wait_order(const void *left, const void *right)
{
    const struct past_wait *a = left, *b = right;

    if (a->subscriber != b->subscriber)
        return a->subscriber < b->subscriber ? -1 : 1;
    if (a->seq != b->seq)
        return a->seq < b->seq ? -1 : 1;
    return a->from < b->from ? -1 : a->from > b->from;
}

static int spill_order(const void *left, const void *right)
{
    const struct past_wait *a = left, *b = right;

    if (a->subscriber != b->subscriber)
        return a->subscriber < b->subscriber ? -1 : 1;
    return a->from < b->from ? -1 : a->from > b->from;
}

static void collect(struct past_process *process, uint64_t end)
{
    size_t room = 0;

    for (size_t i = 0; i < process->events; i++) {
        const struct past_event *e = &process->event[i];

        if (e->kind != TRACE_PUBLISH)
            continue;
        if (process->waits == room)
            process->wait =
                past_grow(process->wait, &room, sizeof(*process->wait));
        process->wait[process->waits++] =
            (struct past_wait){.from = e->ns,
                               .to = end,
                               .seq = e->seq,
                               .start = e->start,
                               .end = e->end,
                               .subscriber = e->subscriber,
                               .reason = e->reason,
                               .called = e->flags & TRACE_INLINE};
    }
    if (process->waits)
        qsort(process->wait, process->waits, sizeof(*process->wait),
              wait_order);
}

/* The first of them with this number; NULL: none has it. */
static struct past_wait *find(struct past_process *process, uint32_t subscriber,
                              uint64_t seq)
{
    size_t low = 0, high = process->waits;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct past_wait *w = &process->wait[middle];

        if (w->subscriber < subscriber ||
            (w->subscriber == subscriber && w->seq < seq))
            low = middle + 1;
        else
            high = middle;
    }
    if (low < process->waits && process->wait[low].subscriber == subscriber &&
        process->wait[low].seq == seq)
        return &process->wait[low];
    return NULL;
}

/* Told once more as long as it is open: the first time is what counts. */
static void deliver(struct past_process *process, const struct past_event *e)
{
    struct past_wait *w = find(process, e->subscriber, e->seq);
    const struct past_wait *end = process->wait + process->waits;

    for (; w && w < end && w->subscriber == e->subscriber && w->seq == e->seq;
         w++) {
        if (w->told || w->called)
            continue;
        w->told = true;
        w->to = e->ns > w->from ? e->ns : w->from;
    }
}

/* What waited at an OVERFLOW is told by that, if not by itself. Both are in
 * the order of subscribers; the overflows also in that of time. */
static void overflow(struct past_process *process,
                     const struct past_wait *spill, size_t spills)
{
    for (size_t i = 0; spills && i < process->waits; i++) {
        struct past_wait *w = &process->wait[i];
        size_t low = 0, high = spills;

        while (low < high) {
            size_t middle = low + (high - low) / 2;

            if (spill_order(&spill[middle], w) < 0)
                low = middle + 1;
            else
                high = middle;
        }
        if (!w->told && low < spills && spill[low].subscriber == w->subscriber)
            w->to = spill[low].from;
    }
}

static void overflows(struct past_process *process)
{
    struct past_wait *spill = NULL;
    size_t room = 0, n = 0;

    for (size_t i = 0; i < process->events; i++) {
        if (process->event[i].kind != TRACE_OVERFLOW)
            continue;
        if (n == room)
            spill = past_grow(spill, &room, sizeof(*spill));
        spill[n++] =
            (struct past_wait){.from = process->event[i].ns,
                               .subscriber = process->event[i].subscriber};
    }
    if (n)
        qsort(spill, n, sizeof(*spill), spill_order);
    overflow(process, spill, n);
    free(spill);
}

static void count(struct past_process *process, const struct past_event *e)
{
    struct past_subscriber *s = &process->subscriber[e->subscriber];

    switch (e->kind) {
    case TRACE_PUBLISH:
        s->published++;
        s->called += !!(e->flags & TRACE_INLINE);
        break;
    case TRACE_DELIVER:
        s->delivered++;
        s->open += !!(e->flags & TRACE_EVENT_OPEN);
        deliver(process, e);
        break;
    case TRACE_OVERFLOW:
        s->overflows++;
        break;
    case TRACE_WATCH:
        s->watches++;
        break;
    case TRACE_UNWATCH:
        if (e->start || e->end != UINT64_MAX) /* else it unsubscribed */
            s->unwatches++;
        break;
    }
}

static int length_order(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;

    return *a < *b ? -1 : *a > *b;
}

/* Of the waits of one subscriber, which stand together. */
static void measure(struct past_subscriber *s, const struct past_wait *wait,
                    size_t n, uint64_t *length)
{
    for (size_t i = 0; i < n; i++)
        if (wait[i].told)
            length[s->told++] = wait[i].to - wait[i].from;
        else if (!wait[i].called)
            s->untold++;
    if (!s->told)
        return;
    qsort(length, s->told, sizeof(*length), length_order);
    s->median = length[(s->told - 1) / 2];
    s->p99 = length[(s->told - 1) * 99 / 100];
    s->most = length[s->told - 1];
}

void past_settle_waits(struct past_process *process, uint64_t end)
{
    uint64_t *length = NULL;
    size_t room = 0;

    collect(process, end);
    for (size_t i = 0; i < process->events; i++)
        if (process->event[i].kind > TRACE_RELEASE &&
            process->event[i].kind < TRACE_USER)
            count(process, &process->event[i]);
    overflows(process);
    while (room < process->waits)
        length = past_grow(length, &room, sizeof(*length));
    for (size_t i = 0, n; i < process->waits; i += n) {
        uint32_t who = process->wait[i].subscriber;

        for (n = 1;
             i + n < process->waits && process->wait[i + n].subscriber == who;
             n++)
            ;
        measure(&process->subscriber[who], process->wait + i, n, length);
    }
    free(length);
}
