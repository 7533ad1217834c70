/* SPDX-License-Identifier: BSD-3-Clause */
/* What is kept of a past: processes, records, each frame and stack once. */
#include "past.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "text.h"

/* Modules whose frames do not count as who released: the caller is the
 * innermost frame that is in none of them. */
static const char *const wrappers[] = {
    "libc.so",     "libc-2",      "ld-linux",     "libpthread",   "libjemalloc",
    "libtcmalloc", "libmimalloc", "libtbbmalloc", "libstdc++.so", "liblapse",
};

void *past_grow(void *old, size_t *room, size_t size)
{
    size_t more = *room ? 2 * *room : 64;
    void *new = realloc(old, more * size);

    if (!new) {
        say("out of memory");
        exit(EXIT_TROUBLE);
    }
    *room = more;
    return new;
}

/* Room for one more, of an array whose room is its count rounded up. */
static void *past_more(void *old, size_t count, size_t size)
{
    if (count && (count < 64 || (count & (count - 1))))
        return old;
    count = count ? count : 32;
    return past_grow(old, &count, size);
}

static char *past_text(const char *text)
{
    char *copy = text ? strdup(text) : NULL;

    if (text && !copy) {
        say("out of memory");
        exit(EXIT_TROUBLE);
    }
    return copy;
}

const char *past_frame_name(const struct past_frame *frame, char *room,
                            size_t size)
{
    if (frame->symbol)
        return frame->symbol;
    if (frame->module)
        snprintf(room, size, "%s+0x%" PRIx64, base_name(frame->module),
                 frame->offset);
    else
        snprintf(room, size, "0x%" PRIx64, frame->offset);
    return room;
}

static uint64_t hash(uint64_t seed, const void *bytes, size_t length)
{
    const uint8_t *at = bytes;

    for (size_t i = 0; i < length; i++)
        seed = (seed ^ at[i]) * 0x100000001b3u;
    return seed ^ seed >> 29;
}

static uint64_t frame_hash(const struct past_frame *frame)
{
    uint64_t h = hash(0xcbf29ce484222325u, &frame->offset, 8);

    return frame->module ? hash(h, frame->module, strlen(frame->module)) : h;
}

static uint64_t stack_hash(const struct past_stack *stack)
{
    return hash(stack->depth * 2u + stack->cut, stack->frame,
                stack->depth * sizeof(*stack->frame));
}

/* Open addressing, never more than half full; by `same` it is told apart. */
static uint32_t *table_find(struct past_table *table, uint64_t h,
                            const struct past *past, const void *what,
                            bool (*same)(const struct past *, uint32_t,
                                         const void *))
{
    size_t mask = table->size - 1, at = h & mask;

    while (table->slot[at] && !same(past, table->slot[at] - 1, what))
        at = (at + 1) & mask;
    return &table->slot[at];
}

static bool never_same(const struct past *past, uint32_t index,
                       const void *what)
{
    (void)past, (void)index, (void)what;
    return false;
}

static uint64_t hash_of(const struct past *past, const struct past_table *table,
                        uint32_t index)
{
    return table == &past->by_frame ? frame_hash(&past->frame[index])
                                    : stack_hash(&past->stack[index]);
}

static void table_room(struct past *past, struct past_table *table,
                       size_t count)
{
    struct past_table new = {.size = table->size ? 2 * table->size : 256};

    if (2 * (count + 1) < table->size)
        return;
    new.slot = calloc(new.size, sizeof(*new.slot));
    if (!new.slot) {
        say("out of memory");
        exit(EXIT_TROUBLE);
    }
    for (uint32_t i = 0; i < count; i++)
        *table_find(&new, hash_of(past, table, i), past, NULL, never_same) =
            i + 1;
    free(table->slot);
    *table = new;
}

static bool same_frame(const struct past *past, uint32_t index,
                       const void *what)
{
    const struct past_frame *a = &past->frame[index], *b = what;

    if (a->offset != b->offset || !a->module != !b->module)
        return false;
    return !a->module ||
           (!strcmp(a->module, b->module) && !strcmp(a->build_id, b->build_id));
}

uint32_t past_frame(struct past *past, const char *module, const char *build_id,
                    uint64_t offset, const char *symbol)
{
    struct past_frame frame = {.module = (char *)module, .offset = offset};
    uint32_t *slot;

    snprintf(frame.build_id, sizeof(frame.build_id), "%s", build_id);
    table_room(past, &past->by_frame, past->frames);
    slot = table_find(&past->by_frame, frame_hash(&frame), past, &frame,
                      same_frame);
    if (*slot)
        return *slot - 1;
    past->frame = past_more(past->frame, past->frames, sizeof(frame));
    frame.module = past_text(module);
    frame.symbol = past_text(symbol && *symbol ? symbol : NULL);
    past->frame[past->frames] = frame;
    *slot = (uint32_t)++past->frames;
    return *slot - 1;
}

void past_frame_call(struct past *past, uint32_t frame, const char *symbol)
{
    past->frame[frame].symbol = past_text(symbol);
}

static bool is_wrapper(const struct past_frame *frame)
{
    const char *base = frame->module ? base_name(frame->module) : "";

    for (size_t i = 0; i < sizeof(wrappers) / sizeof(*wrappers); i++)
        if (!strncmp(base, wrappers[i], strlen(wrappers[i])))
            return true;
    return false;
}

/* If all of it is libc's, who called the function of the system call. */
static uint32_t find_caller(const struct past *past,
                            const struct past_stack *stack)
{
    for (uint32_t i = 0; i < stack->depth; i++)
        if (!is_wrapper(&past->frame[stack->frame[i]]))
            return i;
    return stack->depth > 1;
}

static bool same_stack(const struct past *past, uint32_t index,
                       const void *what)
{
    const struct past_stack *a = &past->stack[index], *b = what;

    return a->depth == b->depth && a->cut == b->cut && a->copied == b->copied &&
           !memcmp(a->frame, b->frame, a->depth * sizeof(*a->frame));
}

uint32_t past_stack(struct past *past, const uint32_t *frames, uint32_t depth,
                    bool copied, bool cut)
{
    struct past_stack stack = {.depth = depth,
                               .copied = copied,
                               .cut = cut,
                               .frame = (uint32_t *)frames};
    size_t room = depth ? depth : 1;
    uint32_t *slot;

    table_room(past, &past->by_stack, past->stacks);
    slot = table_find(&past->by_stack, stack_hash(&stack), past, &stack,
                      same_stack);
    if (*slot)
        return *slot - 1;
    past->stack = past_more(past->stack, past->stacks, sizeof(stack));
    stack.caller = find_caller(past, &stack);
    stack.frame = past_grow(NULL, &room, sizeof(*frames));
    memcpy(stack.frame, frames, depth * sizeof(*frames));
    past->stack[past->stacks] = stack;
    *slot = (uint32_t)++past->stacks;
    return *slot - 1;
}

struct past_process *past_process_add(struct past *past, const char *file,
                                      const struct trace_header *head,
                                      uint64_t began)
{
    struct past_process *process = calloc(1, sizeof(*process));

    if (!process)
        return NULL;
    past->process =
        past_more(past->process, past->processes, sizeof(*past->process));
    past->process[past->processes++] = process;
    process->file = past_text(file);
    process->head = *head;
    process->head.name[sizeof(head->name) - 1] = '\0';
    process->head.program[sizeof(head->program) - 1] = '\0';
    process->head.arguments[sizeof(head->arguments) - 1] = '\0';
    process->begin = process->last = began;
    for (unsigned i = 0; i < TRACE_RINGS; i++)
        process->ring[i].release = SIZE_MAX;
    return process;
}

static void take_user(struct past_process *process, struct past_event *event,
                      const struct trace_user *user)
{
    size_t most = user->head.bytes - sizeof(*user);

    event->type = user->type;
    event->len = user->len < most ? user->len : (uint32_t)most;
    event->data = process->data_len;
    while (process->data_room < process->data_len + event->len)
        process->data = past_grow(process->data, &process->data_room, 1);
    memcpy(process->data + process->data_len, user + 1, event->len);
    process->data_len += event->len;
}

/* PUBLISH and RELEASE of one release have one turn and are next to each other:
 * the former count as hits of the latter, whichever comes first. */
static void take_turn(struct past_process *process, struct past_ring *ring,
                      struct past_event *event, uint32_t turn)
{
    if (ring->turn != turn)
        *ring = (struct past_ring){
            .turn = turn, .release = SIZE_MAX, .next = ring->next};
    if (event->kind == TRACE_RELEASE) {
        event->hits = ring->hits;
        ring->release = process->events;
        ring->hits = 0;
    } else if (ring->release != SIZE_MAX) {
        process->event[ring->release].hits++;
    } else {
        ring->hits++;
    }
}

static void take_release(struct past_event *event,
                         const struct trace_release *release, uint32_t stack)
{
    event->start = release->start;
    event->end = release->end;
    event->path = release->path;
    event->reason = release->reason;
    event->inside = release->inside & 3;
    event->stack = stack;
}

static void take_told(struct past_event *event, const struct trace_told *told)
{
    event->start = told->start;
    event->end = told->end;
    event->seq = told->seq;
    event->subscriber = (uint16_t)(told->subscriber % PAST_SUBSCRIBERS);
    event->reason = (uint8_t)told->reason;
}

/* Bytes that a record of its kind has at least. */
static size_t least(unsigned kind)
{
    if (kind == TRACE_RELEASE)
        return sizeof(struct trace_release);
    if (kind == TRACE_USER)
        return sizeof(struct trace_user);
    return kind > TRACE_RELEASE && kind < TRACE_USER ? sizeof(struct trace_told)
                                                     : SIZE_MAX;
}

struct past_event *past_take(struct past_process *process,
                             const struct trace_record *record, unsigned ring,
                             uint64_t ns, uint32_t stack)
{
    struct past_event event = {.ns = process->begin + ns,
                               .tid = record->tid,
                               .kind = (uint8_t)record->kind,
                               .flags = record->flags};

    if (record->bytes < least(record->kind))
        return NULL;
    if (process->events == process->room)
        process->event =
            past_grow(process->event, &process->room, sizeof(event));
    if (record->kind == TRACE_RELEASE)
        take_release(&event, (const void *)record, stack);
    else if (record->kind == TRACE_USER)
        take_user(process, &event, (const void *)record);
    else
        take_told(&event, (const void *)record);
    if (record->kind == TRACE_RELEASE || record->kind == TRACE_PUBLISH)
        take_turn(process, &process->ring[ring % TRACE_RINGS], &event,
                  record->turn);
    process->event[process->events++] = event;
    if (event.ns > process->last)
        process->last = event.ns;
    if (process->ring[ring % TRACE_RINGS].next != record->number &&
        event.ns > process->complete)
        process->complete = event.ns;
    process->ring[ring % TRACE_RINGS].next = record->number + 1;
    return &process->event[process->events - 1];
}

static void process_free(struct past_process *process)
{
    for (size_t i = 0; i < process->types; i++)
        free(process->type[i].name);
    free(process->type);
    free(process->file);
    free(process->event);
    free(process->data);
    free(process->caller);
    free(process->watch);
    free(process->watch_reach);
    free(process->wait);
    free(process);
}

void past_free(struct past *past)
{
    for (size_t i = 0; i < past->processes; i++)
        process_free(past->process[i]);
    for (size_t i = 0; i < past->frames; i++) {
        free(past->frame[i].module);
        free(past->frame[i].symbol);
    }
    for (size_t i = 0; i < past->stacks; i++)
        free(past->stack[i].frame);
    free(past->process);
    free(past->frame);
    free(past->stack);
    free(past->by_frame.slot);
    free(past->by_stack.slot);
}

int past_rank(const void *left, const void *right)
{
    const struct past_process *a = *(struct past_process *const *)left;
    const struct past_process *b = *(struct past_process *const *)right;

    if (a->sum.count != b->sum.count)
        return a->sum.count > b->sum.count ? -1 : 1;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}
