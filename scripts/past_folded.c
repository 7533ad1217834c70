/* SPDX-License-Identifier: BSD-3-Clause */
/* Folded stacks: "process;outermost;...;innermost;path N", a line a stack, as
 * flamegraph.pl, speedscope and their like read them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "past.h"
#include "reports.h"

struct fold {
    uint32_t stack;
    uint8_t path;
    struct past_sum sum;
};

/* A name must not end a frame, a line, or look like the number. */
static void put_frame(FILE *out, const char *name, size_t length)
{
    for (size_t i = 0; i < length && name[i]; i++) {
        unsigned char c = (unsigned char)name[i];

        putc(c == ';' ? ':' : c <= 0x20 || c == 0x7f ? '_' : c, out);
    }
}

static void put_stack(FILE *out, const struct past *past,
                      const struct past_stack *stack)
{
    char room[512];

    if (stack->cut)
        fputs(";[cut]", out);
    for (uint32_t i = stack->depth; i--;) {
        const char *name =
            past_frame_name(&past->frame[stack->frame[i]], room, sizeof(room));

        putc(';', out);
        put_frame(out, name, strlen(name));
    }
}

static int fold_order(const void *left, const void *right)
{
    const struct fold *a = left, *b = right;

    if (a->stack != b->stack)
        return a->stack < b->stack ? -1 : 1;
    return a->path < b->path ? -1 : a->path > b->path;
}

static size_t collect(const struct past *past,
                      const struct past_process *process, struct fold **fold)
{
    size_t n = 0, room = 0;

    for (size_t i = 0; i < process->events; i++) {
        const struct past_event *e = &process->event[i];

        if (e->kind != TRACE_RELEASE || e->stack >= past->stacks)
            continue;
        if (n == room)
            *fold = past_grow(*fold, &room, sizeof(**fold));
        (*fold)[n++] = (struct fold){
            e->stack,
            e->path,
            {.count = 1, .bytes = past_bytes(e), .hits = e->hits}};
    }
    if (n)
        qsort(*fold, n, sizeof(**fold), fold_order);
    return n;
}

static void process_folded(const struct past *past,
                           const struct past_process *process, FILE *out,
                           enum past_by by)
{
    struct fold *fold = NULL;
    size_t n = collect(past, process, &fold);

    for (size_t i = 0, k; i < n; i = k) {
        uint64_t value = 0;

        for (k = i; k < n && !fold_order(&fold[i], &fold[k]); k++)
            value += past_value(&fold[k].sum, by);
        if (!value)
            continue;
        put_frame(out, process->head.name, sizeof(process->head.name));
        put_stack(out, past, &past->stack[fold[i].stack]);
        fprintf(out, ";[%s] %" PRIu64 "\n", reports_path_name(fold[i].path),
                value);
    }
    free(fold);
}

void past_folded(const struct past *past, FILE *out, enum past_by by)
{
    for (size_t i = 0; i < past->processes; i++)
        process_folded(past, past->process[i], out, by);
}
