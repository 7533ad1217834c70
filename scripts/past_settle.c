/* SPDX-License-Identifier: BSD-3-Clause */
/* What belongs together in a past: watches and their ends, records and who was
 * told of them, releases and who made them. */
#include <stdlib.h>
#include <string.h>

#include "past.h"

static int event_order(const void *left, const void *right)
{
    const struct past_event *a = left, *b = right;

    return a->ns < b->ns ? -1 : a->ns > b->ns;
}

/* Mostly in order already, as they were read; what came late moves down. */
static void order_events(struct past_process *process)
{
    size_t steps = 0, limit = 16 * process->events;

    for (size_t i = 1; i < process->events && steps < limit; i++) {
        struct past_event event = process->event[i];
        size_t at = i;

        for (; at && process->event[at - 1].ns > event.ns; at--, steps++)
            process->event[at] = process->event[at - 1];
        process->event[at] = event;
    }
    if (steps >= limit) /* glibc's sort is stable when memory allows */
        qsort(process->event, process->events, sizeof(*process->event),
              event_order);
}

static void sum_add(struct past_sum *sum, const struct past_event *event)
{
    sum->count++;
    sum->bytes += past_bytes(event);
    sum->hits += event->hits;
    sum->inside[event->inside]++;
}

static void sum_releases(struct past_process *process)
{
    for (size_t i = 0; i < process->events; i++) {
        const struct past_event *event = &process->event[i];

        if (event->kind != TRACE_RELEASE)
            continue;
        if (event->path < LAPSE_PATH_COUNT && event->reason < PAST_REASONS)
            sum_add(&process->by[event->path][event->reason], event);
        if (event->path != LAPSE_PATH_FREE)
            sum_add(&process->sum, event);
    }
}

static int caller_place(const void *left, const void *right)
{
    const struct past_caller *a = left, *b = right;

    if (a->frame != b->frame)
        return a->frame < b->frame ? -1 : 1;
    return a->path < b->path ? -1 : a->path > b->path;
}

static struct past_caller caller_of(const struct past *past,
                                    const struct past_event *event)
{
    const struct past_stack *stack = &past->stack[event->stack];
    struct past_caller caller = {.path = event->path};

    caller.frame = stack->frame[stack->caller];
    caller.via = stack->frame[stack->caller ? stack->caller - 1 : 0];
    sum_add(&caller.sum, event);
    return caller;
}

void past_settle_callers(const struct past *past, struct past_process *process)
{
    size_t room = 0, n = 0, kept = 0;

    for (size_t i = 0; i < process->events; i++) {
        if (process->event[i].kind != TRACE_RELEASE ||
            process->event[i].stack >= past->stacks ||
            !past->stack[process->event[i].stack].depth)
            continue;
        if (n == room)
            process->caller =
                past_grow(process->caller, &room, sizeof(*process->caller));
        process->caller[n++] = caller_of(past, &process->event[i]);
    }
    if (n)
        qsort(process->caller, n, sizeof(*process->caller), caller_place);
    for (size_t i = 0; i < n; i++) {
        struct past_caller *to = &process->caller[kept - !!kept];
        const struct past_caller *from = &process->caller[i];

        if (!kept || caller_place(to, from)) {
            process->caller[kept++] = *from;
            continue;
        }
        to->sum.count += from->sum.count;
        to->sum.bytes += from->sum.bytes;
        to->sum.hits += from->sum.hits;
        for (unsigned k = 0; k < 4; k++)
            to->sum.inside[k] += from->sum.inside[k];
    }
    process->callers = kept;
}

static enum past_by order_by; /* qsort() hands nothing on */

static int caller_order(const void *left, const void *right)
{
    const struct past_caller *a = left, *b = right;
    uint64_t x = past_value(&a->sum, order_by);
    uint64_t y = past_value(&b->sum, order_by);

    if (x != y)
        return x > y ? -1 : 1;
    if (a->sum.count != b->sum.count)
        return a->sum.count > b->sum.count ? -1 : 1;
    return caller_place(a, b);
}

void past_sort_callers(struct past_process *process, enum past_by by)
{
    order_by = by;
    if (process->callers)
        qsort(process->caller, process->callers, sizeof(*process->caller),
              caller_order);
}

static int process_order(const void *left, const void *right)
{
    const struct past_process *a = *(struct past_process *const *)left;
    const struct past_process *b = *(struct past_process *const *)right;

    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->head.pid < b->head.pid ? -1 : a->head.pid > b->head.pid;
}

void past_settle(struct past *past)
{
    if (past->processes)
        qsort(past->process, past->processes, sizeof(*past->process),
              process_order);
    for (size_t i = 0; i < past->processes; i++)
        if (past->process[i]->last > past->end)
            past->end = past->process[i]->last;
    for (size_t i = 0; i < past->processes; i++) {
        struct past_process *process = past->process[i];

        order_events(process);
        sum_releases(process);
        past_settle_callers(past, process);
        past_settle_watches(process, process->last);
        past_settle_waits(process, process->last);
    }
}
