/* SPDX-License-Identifier: BSD-3-Clause */
/* From the files of traces into the past: names of frames are found here, as
 * the map of modules is that of the file. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "build_id.h"
#include "command.h"
#include "past.h"
#include "symbols.h"
#include "unwind.h"

/* `pc` of a caller comes behind the call: the symbol is that of the call. A
 * file that was exchanged since has none. */
static uint32_t frame_at(struct past *past, struct trace *trace, uint64_t pc,
                         const struct trace_segment *segment, bool caller,
                         const char *symbol)
{
    char build_id[65];
    size_t before = past->frames;
    uint64_t offset;
    uint32_t frame;

    if (!segment)
        return past_frame(past, NULL, "", pc, symbol);
    build_id_text(segment->build_id, segment->build_id_len, build_id);
    offset = pc - segment->bias;
    frame = past_frame(past, segment->name, build_id, offset, symbol);
    if (past->frames > before && !symbol &&
        build_id_is(segment, trace_realtime(trace, segment->loaded)))
        past_frame_call(past, frame,
                        symbols_find(segment->name, offset - caller));
    return frame;
}

/* The one caller that is known without a stack. */
static uint32_t stack_of_pc(struct past *past, struct trace *trace,
                            const struct trace_release *release)
{
    uint32_t frame;

    if (!release->pc)
        return past_stack(past, NULL, 0, false, true);
    frame = frame_at(past, trace, release->pc,
                     trace_segment(trace, release->pc - 1, release->head.ticks),
                     true, NULL);
    return past_stack(past, &frame, 1, false, true);
}

static uint32_t stack_of(struct past *past, struct past_process *process,
                         struct trace *trace, const struct trace_record *record)
{
    struct frame frames[UNWIND_FRAMES];
    uint32_t index[UNWIND_FRAMES];
    enum unwind_end end;
    size_t n = 0;

    if (record->flags & TRACE_HAS_STACK)
        n = unwind(trace, record, frames, &end);
    if (!n) {
        process->unread += !!(record->flags & TRACE_HAS_STACK);
        return stack_of_pc(past, trace, (const void *)record);
    }
    for (size_t i = 0; i < n; i++)
        index[i] = frame_at(past, trace, frames[i].pc, frames[i].segment,
                            i > 0, frames[i].symbol);
    return past_stack(past, index, (uint32_t)n, true, end != UNWIND_WHOLE);
}

static void type_count(struct past_process *process, struct trace *trace,
                       uint32_t index)
{
    const struct trace_type *type = trace_type(trace, index);

    if (index >= TRACE_TYPES)
        return;
    while (process->types <= index) {
        if (!process->type)
            process->type = calloc(TRACE_TYPES, sizeof(*process->type));
        if (!process->type)
            return;
        process->types++;
    }
    if (!process->type[index].name && type)
        process->type[index].name = strndup(type->name, sizeof(type->name));
    process->type[index].count++;
}

/* A program that runs may write faster than this reads: until now, no more. */
static uint64_t now_of(const struct trace_header *head)
{
    struct timespec ts;
    uint64_t now;

    if (head->ended || clock_gettime(CLOCK_MONOTONIC, &ts))
        return UINT64_MAX;
    now = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
    return now > head->start.monotonic ? now - head->start.monotonic
                                       : UINT64_MAX;
}

static void take_one(struct past *past, struct past_process *process,
                     struct trace *trace, const struct trace_record *record,
                     unsigned ring)
{
    uint64_t ns = trace_ns(trace, record->ticks);
    uint32_t stack = UINT32_MAX;
    const struct trace_segment *module;
    struct past_event *event;

    if (record->kind == TRACE_RELEASE &&
        record->bytes >= sizeof(struct trace_release))
        stack = stack_of(past, process, trace, record);
    if (record->kind == TRACE_USER &&
        record->bytes >= sizeof(struct trace_user))
        type_count(process, trace, ((const struct trace_user *)record)->type);
    event = past_take(process, record, ring, ns, stack);
    if (!event || event->kind != TRACE_RELEASE)
        return;
    module = trace_segment(trace, event->start, record->ticks);
    if (module)
        event->module = past_frame(past, module->name, "", 0, NULL) + 1;
}

static void take_all(struct past *past, struct past_process *process,
                     struct trace *trace)
{
    uint64_t now = now_of(&process->head);
    const struct trace_record *record;
    unsigned ring;

    while ((record = trace_next(trace, &ring))) {
        uint64_t ns = trace_ns(trace, record->ticks);

        take_one(past, process, trace, record, ring);
        if (ns > now)
            break;
    }
    process->read = trace_read(trace);
    process->overwritten = trace_overwritten(trace);
    process->damaged = trace_damaged(trace);
}

/* When it began, of the past that began with the first file that was read;
 * later ones may have begun before: all move then. */
static uint64_t begin_of(struct past *past, const struct trace_header *head)
{
    const struct past_process *first =
        past->processes ? past->process[0] : NULL;
    uint64_t zero, mine;

    if (!first)
        return 0;
    if (strncmp(first->head.boot, head->boot, sizeof(head->boot))) {
        zero = first->head.start.realtime;
        mine = head->start.realtime;
    } else {
        zero = first->head.start.monotonic;
        mine = head->start.monotonic;
    }
    zero -= first->begin;
    if (mine >= zero)
        return mine - zero;
    for (size_t i = 0; i < past->processes; i++) {
        struct past_process *process = past->process[i];

        process->begin += zero - mine;
        process->last += zero - mine;
        for (size_t k = 0; k < process->events; k++)
            process->event[k].ns += zero - mine;
    }
    return 0;
}

static bool read_file(struct past *past, const char *path)
{
    const char *why = "cannot be read";
    struct trace *trace = trace_open(path, &why);
    struct past_process *process;

    if (!trace) {
        say("'%s' %s", path, why);
        return false;
    }
    process = past_process_add(past, path, trace_head(trace),
                               begin_of(past, trace_head(trace)));
    if (process)
        take_all(past, process, trace);
    else
        say("out of memory");
    trace_close(trace);
    return process != NULL;
}

static int by_name(const struct dirent **left, const struct dirent **right)
{
    return strcmp((*left)->d_name, (*right)->d_name);
}

static int is_trace(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);

    return n > 6 && !strcmp(entry->d_name + n - 6, ".trace");
}

static bool read_directory(struct past *past, const char *path)
{
    struct dirent **entry;
    int n = scandir(path, &entry, is_trace, by_name);
    bool good = true;

    if (n < 0) {
        say("cannot read '%s': %s", path, strerror(errno));
        return false;
    }
    if (!n)
        say("there is no trace in '%s'", path);
    good = n > 0;
    for (int i = 0; i < n; i++) {
        char *full = NULL;

        if (asprintf(&full, "%s/%s", path, entry[i]->d_name) < 0 ||
            !read_file(past, full))
            good = false;
        free(full);
        free(entry[i]);
    }
    free(entry);
    return good;
}

bool past_read(struct past *past, const char *path)
{
    struct stat st;

    if (!stat(path, &st) && S_ISDIR(st.st_mode))
        return read_directory(past, path);
    return read_file(past, path);
}
