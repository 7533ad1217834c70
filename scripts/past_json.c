/* SPDX-License-Identifier: BSD-3-Clause */
/* The past as a JSON document. */
#include <inttypes.h>
#include <string.h>

#include "json.h"
#include "past.h"
#include "reports.h"

static void put_sum(FILE *out, const struct past_sum *sum)
{
    fprintf(out,
            "\"releases\": %" PRIu64 ", \"bytes\": %" PRIu64
            ", \"hits\": %" PRIu64 ", \"inside_allocator\": %" PRIu64
            ", \"inside_loader\": %" PRIu64 ", \"inside_libc\": %" PRIu64,
            sum->count, sum->bytes, sum->hits, sum->inside[1], sum->inside[2],
            sum->inside[3]);
}

static void put_paths(FILE *out, const struct past_process *process)
{
    unsigned n = 0;

    fputs("\"paths\": [", out);
    for (unsigned path = 0; path < LAPSE_PATH_COUNT; path++)
        for (unsigned reason = 0; reason < PAST_REASONS; reason++) {
            if (!process->by[path][reason].count)
                continue;
            fprintf(out, "%s\n      {\"path\": \"%s\", \"reason\": \"%s\", ",
                    n++ ? "," : "", reports_path_name(path),
                    reports_reason_name(reason));
            put_sum(out, &process->by[path][reason]);
            putc('}', out);
        }
    putc(']', out);
}

static void put_frame(FILE *out, const struct past_frame *frame)
{
    fputs("\"module\": ", out);
    json_string_or_null(out, frame->module);
    fputs(", \"build_id\": ", out);
    json_string_or_null(out, *frame->build_id ? frame->build_id : NULL);
    fprintf(out, ", \"%s\": \"0x%" PRIx64 "\", \"symbol\": ",
            frame->module ? "offset" : "pc", frame->offset);
    json_string_or_null(out, frame->symbol);
}

static void put_callers(FILE *out, const struct past *past,
                        struct past_process *process, size_t top)
{
    past_sort_callers(process, PAST_BY_COUNT);
    fputs("\"callers\": [", out);
    for (size_t i = 0; i < process->callers && i < top; i++) {
        const struct past_caller *caller = &process->caller[i];

        fprintf(out, "%s\n      {", i ? "," : "");
        put_frame(out, &past->frame[caller->frame]);
        fputs(", \"via\": ", out);
        json_string_or_null(out, caller->via == caller->frame
                                     ? NULL
                                     : past->frame[caller->via].symbol);
        fprintf(out, ", \"path\": \"%s\", ", reports_path_name(caller->path));
        put_sum(out, &caller->sum);
        putc('}', out);
    }
    putc(']', out);
}

static void put_subscribers(FILE *out, const struct past_process *process)
{
    unsigned n = 0;

    fputs("\"subscribers\": [", out);
    for (unsigned i = 0; i < PAST_SUBSCRIBERS; i++) {
        const struct past_subscriber *s = &process->subscriber[i];

        if (!s->watches && !s->unwatches && !s->published && !s->delivered &&
            !s->overflows)
            continue;
        fprintf(out,
                "%s\n      {\"subscriber\": %u, \"watches\": %" PRIu64
                ", \"unwatches\": %" PRIu64 ", \"published\": %" PRIu64
                ", \"inline\": %" PRIu64 ", \"delivered\": %" PRIu64
                ", \"delivered_open\": %" PRIu64 ", \"overflows\": %" PRIu64
                ", \"told\": %" PRIu64 ", \"untold\": %" PRIu64
                ", \"wait_ns\": {\"median\": %" PRIu64 ", \"p99\": %" PRIu64
                ", \"most\": %" PRIu64 "}}",
                n++ ? "," : "", i, s->watches, s->unwatches, s->published,
                s->called, s->delivered, s->open, s->overflows, s->told,
                s->untold, s->median, s->p99, s->most);
    }
    putc(']', out);
}

static void put_events(FILE *out, const struct past_process *process)
{
    unsigned n = 0;

    fputs("\"events\": [", out);
    for (size_t i = 0; i < process->types; i++) {
        if (!process->type[i].count)
            continue;
        fprintf(out, "%s\n      {\"name\": ", n++ ? "," : "");
        json_string_or_null(out, process->type[i].name);
        fprintf(out, ", \"count\": %" PRIu64 "}", process->type[i].count);
    }
    putc(']', out);
}

static void put_head(FILE *out, const struct past_process *process)
{
    const struct trace_header *head = &process->head;

    fprintf(out,
            "\n    {\"pid\": %" PRIu32 ", \"ppid\": %" PRIu32 ", \"name\": ",
            head->pid, head->ppid);
    json_string_or_null(out, head->name);
    fputs(", \"program\": ", out);
    json_string_or_null(out, head->program);
    fputs(", \"arguments\": ", out);
    json_string_or_null(out, head->arguments);
    fputs(", \"file\": ", out);
    json_string_or_null(out, process->file);
    fprintf(out,
            ",\n     \"start_ns\": %" PRIu64 ", \"span_ns\": %" PRIu64
            ", \"ended\": %s, \"read\": %" PRIu64 ", \"overwritten\": %" PRIu64
            ", \"lost\": %" PRIu64 ", \"stack_bytes\": %" PRIu32
            ", \"stackless\": %" PRIu64 ", \"damaged\": %" PRIu64
            ", \"segments_lost\": %" PRIu64 ",\n     \"watched_most\": %" PRIu64
            ", \"watched_last\": %" PRIu64 ", ",
            head->start.realtime, process->last - process->begin,
            head->ended ? "true" : "false", process->read, process->overwritten,
            head->lost, head->stack_bytes, head->stackless, process->damaged,
            head->segments_lost, process->watched_most, process->watched_last);
    put_sum(out, &process->sum);
    fputs(",\n     ", out);
}

void past_json(struct past *past, FILE *out, size_t top)
{
    fputs("{\n  \"version\": 1,\n  \"processes\": [", out);
    for (size_t i = 0; i < past->processes; i++) {
        fputs(i ? "," : "", out);
        put_head(out, past->process[i]);
        put_paths(out, past->process[i]);
        fputs(",\n     ", out);
        put_callers(out, past, past->process[i], top);
        fputs(",\n     ", out);
        put_subscribers(out, past->process[i]);
        fputs(",\n     ", out);
        put_events(out, past->process[i]);
        putc('}', out);
    }
    fputs("]\n}\n", out);
}
