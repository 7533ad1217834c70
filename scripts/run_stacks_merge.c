/* SPDX-License-Identifier: BSD-3-Clause */
/* Releases that came the same way are one stack. */
#include <stdlib.h>
#include <string.h>

#include "build_id.h"
#include "run_stacks.h"

/* Names of modules and build ids, each once: equal if the pointers are. */
static struct kept {
    struct kept *next;
    char text[];
} *kept;

static const char *keep(const char *text)
{
    size_t bytes = strlen(text) + 1;
    struct kept *k = kept;

    while (k && strcmp(k->text, text))
        k = k->next;
    if (k)
        return k->text;
    k = malloc(sizeof(*k) + bytes);
    if (!k)
        return NULL;
    memcpy(k->text, text, bytes);
    k->next = kept;
    kept = k;
    return k->text;
}

void stacks_strings_free(void)
{
    while (kept) {
        struct kept *k = kept;

        kept = k->next;
        free(k);
    }
}

static const char *keep_build_id(const struct trace_segment *s)
{
    char text[65];

    build_id_text(s->build_id, s->build_id_len, text);
    return keep(text);
}

static void frame_keep(struct stack_frame *to, const struct frame *from)
{
    to->pc = from->pc;
    to->module = from->segment ? keep(from->segment->name) : NULL;
    to->build_id = from->segment ? keep_build_id(from->segment) : "";
    if (!to->build_id)
        to->build_id = "";
    to->offset = from->offset;
    to->symbol = from->symbol;
    to->symbol_offset = from->symbol_offset;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t hash_of(unsigned path, enum unwind_end end,
                        const struct frame *frames, size_t n)
{
    uint64_t hash = mix(path, end);

    for (size_t i = 0; i < n; i++)
        hash = mix(hash,
                   frames[i].segment ? frames[i].offset : frames[i].pc);
    return hash;
}

static bool frame_is(const struct stack_frame *a, const struct frame *b)
{
    if (!a->module || !b->segment)
        return !a->module && !b->segment && a->pc == b->pc;
    return a->offset == b->offset && !strcmp(a->module, b->segment->name);
}

static bool stack_is(const struct stack *s, uint64_t hash, unsigned path,
                     enum unwind_end end, const struct frame *frames, size_t n)
{
    if (s->hash != hash || s->path != path || s->end != end || s->frames != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!frame_is(&s->frame[i], &frames[i]))
            return false;
    return true;
}

static struct stack *stack_new(const struct frame *frames, size_t n)
{
    struct stack *stack =
        calloc(1, sizeof(*stack) + n * sizeof(stack->frame[0]));

    if (!stack)
        return NULL;
    stack->frames = n;
    for (size_t i = 0; i < n; i++)
        frame_keep(&stack->frame[i], &frames[i]);
    return stack;
}

static struct stack *stack_of(struct stacks *s, unsigned path,
                              enum unwind_end end, const struct frame *frames,
                              size_t n)
{
    uint64_t hash = hash_of(path, end, frames, n);
    struct stack **bucket = &s->bucket[hash % STACK_BUCKETS];
    struct stack *stack = *bucket;

    while (stack && !stack_is(stack, hash, path, end, frames, n))
        stack = stack->next;
    if (stack || !(stack = stack_new(frames, n)))
        return stack;
    stack->hash = hash;
    stack->path = path;
    stack->end = end;
    stack->next = *bucket;
    *bucket = stack;
    s->distinct++;
    return stack;
}

void stacks_add(struct stacks *s, struct trace *t,
                const struct trace_release *release)
{
    static struct frame frames[UNWIND_FRAMES];
    enum unwind_end end;
    size_t n = unwind(t, &release->head, frames, &end);
    struct stack *stack;

    if (end == UNWIND_NO_STACK) {
        s->without++;
        return;
    }
    stack = stack_of(s, release->path, end, frames, n);
    if (!stack) {
        s->lost++;
        return;
    }
    s->releases++;
    stack->count++;
    stack->bytes += release->end - release->start;
}

static int order(const void *left, const void *right)
{
    const struct stack *a = *(struct stack *const *)left;
    const struct stack *b = *(struct stack *const *)right;

    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return a->hash < b->hash ? -1 : a->hash > b->hash;
}

void stacks_sort(struct stacks *s)
{
    size_t n = 0;

    free(s->sorted);
    s->sorted = calloc(s->distinct + 1, sizeof(*s->sorted));
    for (size_t i = 0; s->sorted && i < STACK_BUCKETS; i++)
        for (struct stack *stack = s->bucket[i]; stack; stack = stack->next)
            s->sorted[n++] = stack;
    if (n)
        qsort(s->sorted, n, sizeof(*s->sorted), order);
}

void stacks_free(struct stacks *s)
{
    for (size_t i = 0; i < STACK_BUCKETS; i++)
        while (s->bucket[i]) {
            struct stack *stack = s->bucket[i];

            s->bucket[i] = stack->next;
            free(stack);
        }
    free(s->sorted);
}
