/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which UNWATCH ends which WATCH. Mostly they have the same range; those that
 * have not take pages out of the middle of watches (lapse_unwatch(3)), or, with
 * the whole address space, end all of a subscriber.
 */
#include <stdlib.h>

#include "past.h"
#include "steps.h"

/* Of each subscriber and range together, in the order of time. */
static int range_order(const void *left, const void *right)
{
    const struct past_event *a = *(struct past_event *const *)left;
    const struct past_event *b = *(struct past_event *const *)right;

    if (a->subscriber != b->subscriber)
        return a->subscriber < b->subscriber ? -1 : 1;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return a < b ? -1 : a > b;
}

static int time_order(const void *left, const void *right)
{
    const struct past_event *a = *(struct past_event *const *)left;
    const struct past_event *b = *(struct past_event *const *)right;

    return a < b ? -1 : a > b;
}

struct list {
    struct past_event **event;
    size_t count, room;
};

static void list_add(struct list *list, struct past_event *event)
{
    if (list->count == list->room)
        list->event = past_grow(list->event, &list->room, sizeof(*list->event));
    list->event[list->count++] = event;
}

/* `room` of the array is kept by whoever adds, who does all of it at once. */
static void watch_add(struct past_process *process, size_t *room,
                      struct past_watch watch)
{
    if (process->watches == *room)
        process->watch = past_grow(process->watch, room, sizeof(watch));
    process->watch[process->watches++] = watch;
}

static void watch_close(struct past_watch *watch, uint64_t ns)
{
    watch->to = ns;
    watch->open = false;
}

/* The watch of this subscriber made last that is open at that time and has
 * some of the range; SIZE_MAX: none. */
static size_t newest(const struct past_process *process, uint32_t subscriber,
                     uint64_t ns, uint64_t start, uint64_t end)
{
    size_t best = SIZE_MAX;

    for (size_t i = 0; i < process->watches; i++) {
        const struct past_watch *watch = &process->watch[i];

        if (watch->open && watch->subscriber == subscriber &&
            watch->from <= ns && watch->start < end && watch->end > start &&
            (best == SIZE_MAX || watch->from >= process->watch[best].from))
            best = i;
    }
    return best;
}

/* One watch less of each page: what is left of a watch goes on as it began. */
static void cut(struct past_process *process, size_t *room, uint32_t subscriber,
                uint64_t ns, uint64_t start, uint64_t end)
{
    while (start < end) {
        size_t at = newest(process, subscriber, ns, start, end);
        struct past_watch rest;

        if (at == SIZE_MAX)
            return;
        rest = process->watch[at];
        watch_close(&process->watch[at], ns);
        if (rest.start < start) {
            process->watch[at].start = start;
            rest.end = start;
            watch_add(process, room, rest);
            rest.end = process->watch[at].end;
        }
        if (rest.end > end) {
            process->watch[at].end = end;
            rest.start = end;
            watch_add(process, room, rest);
        }
        if (process->watch[at].start > start)
            cut(process, room, subscriber, ns, start, process->watch[at].start);
        start = process->watch[at].end;
    }
}

static void close_all(struct past_process *process, const struct past_event *e)
{
    for (size_t i = 0; i < process->watches; i++)
        if (process->watch[i].open && process->watch[i].from <= e->ns &&
            process->watch[i].subscriber == e->subscriber)
            watch_close(&process->watch[i], e->ns);
}

/* Those of one subscriber and range; what finds no watch goes to `loose`. */
static size_t pair(struct past_process *process, size_t *room,
                   const struct list *all, size_t from, uint64_t end,
                   struct list *loose)
{
    const struct past_event *first = all->event[from];
    size_t bottom = process->watches, open = 0, i = from;

    for (; i < all->count && all->event[i]->start == first->start &&
           all->event[i]->end == first->end &&
           all->event[i]->subscriber == first->subscriber;
         i++) {
        struct past_event *e = all->event[i];

        if (e->kind == TRACE_WATCH) {
            watch_add(process, room,
                      (struct past_watch){e->start, e->end, e->ns, end,
                                          e->subscriber, true});
            open++;
        } else if (open) {
            size_t at = process->watches - 1;

            while (at > bottom && !process->watch[at].open)
                at--;
            watch_close(&process->watch[at], e->ns);
            open--;
        } else {
            list_add(loose, e);
        }
    }
    return i;
}

static void untie(struct past_process *process, size_t *room,
                  const struct past_event *e)
{
    if (!e->start && e->end == UINT64_MAX)
        close_all(process, e);
    else if (newest(process, e->subscriber, e->ns, e->start, e->end) !=
             SIZE_MAX)
        cut(process, room, e->subscriber, e->ns, e->start, e->end);
    else if (process->overwritten) /* so its WATCH may be gone */
        watch_add(process, room,
                  (struct past_watch){e->start, e->end, process->begin, e->ns,
                                      e->subscriber, false});
}

static void watched_bytes(struct past_process *process)
{
    struct steps steps = {0};
    uint64_t now = 0;

    for (size_t i = 0; i < process->watches; i++) {
        const struct past_watch *watch = &process->watch[i];

        steps_add(&steps, watch->from, watch->open ? STEPS_NEVER : watch->to,
                  watch->end - watch->start);
    }
    steps_sort(&steps);
    for (size_t i = 0; i < steps.n; i++) {
        now += steps.step[i].by;
        if ((int64_t)now > (int64_t)process->watched_most)
            process->watched_most = now;
    }
    process->watched_last = now;
    free(steps.step);
}

static int start_order(const void *left, const void *right)
{
    const struct past_watch *a = left, *b = right;

    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return a->from < b->from ? -1 : a->from > b->from;
}

static void index_watches(struct past_process *process)
{
    size_t room = 0;

    while (room < process->watches)
        process->watch_reach = past_grow(process->watch_reach, &room,
                                         sizeof(*process->watch_reach));
    if (process->watches)
        qsort(process->watch, process->watches, sizeof(*process->watch),
              start_order);
    for (size_t i = 0; i < process->watches; i++) {
        uint64_t before = i ? process->watch_reach[i - 1] : 0;
        uint64_t end = process->watch[i].end;

        process->watch_reach[i] = end > before ? end : before;
    }
}

size_t past_meets(const struct past_process *process, uint64_t ns,
                  uint64_t start, uint64_t end)
{
    size_t low = 0, high = process->watches;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (process->watch[middle].start < end)
            low = middle + 1;
        else
            high = middle;
    }
    while (low-- && process->watch_reach[low] > start) {
        const struct past_watch *watch = &process->watch[low];

        if (watch->end > start && watch->from <= ns &&
            (watch->open || watch->to >= ns))
            return low;
    }
    return SIZE_MAX;
}

void past_settle_watches(struct past_process *process, uint64_t end)
{
    struct list all = {0}, loose = {0};
    size_t room = 0;

    for (size_t i = 0; i < process->events; i++) {
        struct past_event *e = &process->event[i];

        if ((e->kind == TRACE_WATCH || e->kind == TRACE_UNWATCH) &&
            e->end > e->start)
            list_add(&all, e);
    }
    if (all.count)
        qsort(all.event, all.count, sizeof(*all.event), range_order);
    for (size_t i = 0; i < all.count;)
        i = pair(process, &room, &all, i, end, &loose);
    if (loose.count)
        qsort(loose.event, loose.count, sizeof(*loose.event), time_order);
    for (size_t i = 0; i < loose.count; i++)
        untie(process, &room, loose.event[i]);
    watched_bytes(process);
    index_watches(process);
    free(all.event);
    free(loose.event);
}
