/* SPDX-License-Identifier: BSD-3-Clause */
/* The past as a text for people. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "past.h"
#include "reports.h"
#include "text.h"

enum { SHOWN = 8 }; /* processes in full; of more those that released most */

static void row(FILE *out, const char *path, const char *reason,
                const struct past_sum *sum)
{
    char bytes[16];

    fprintf(out,
            "  %-16s %-9s %8" PRIu64 " %7s %12" PRIu64 " %9" PRIu64 " %7" PRIu64
            " %8" PRIu64 "\n",
            path, reason, sum->count, human(sum->bytes, bytes), sum->inside[1],
            sum->inside[2], sum->inside[3], sum->hits);
}

static void table(FILE *out, struct past_sum by[][PAST_REASONS],
                  const struct past_sum *sum)
{
    unsigned rows = 0;

    fprintf(out, "  %-16s %-9s %8s %7s %12s %9s %7s %8s\n", "path", "reason",
            "releases", "bytes", "in allocator", "in loader", "in libc",
            "hits");
    for (unsigned path = 0; path < LAPSE_PATH_COUNT; path++)
        for (unsigned reason = 0; reason < PAST_REASONS; reason++) {
            if (!by[path][reason].count)
                continue;
            row(out, reports_path_name(path), reports_reason_name(reason),
                &by[path][reason]);
            rows++;
        }
    if (rows > 1)
        row(out, "total", "", sum);
}

static void caller_print(FILE *out, const struct past *past,
                         const struct past_caller *caller)
{
    const struct past_frame *frame = &past->frame[caller->frame];
    const struct past_frame *via = &past->frame[caller->via];
    char bytes[16];

    fprintf(out, "  %9" PRIu64 " %7s %8" PRIu64 "  %-8s ", caller->sum.count,
            human(caller->sum.bytes, bytes), caller->sum.hits,
            reports_path_name(caller->path));
    if (!frame->module) {
        fprintf(out, "0x%" PRIx64, frame->offset);
    } else {
        const char *base = base_name(frame->module);

        put_text(out, base, strlen(base));
        fprintf(out, "+0x%" PRIx64, frame->offset);
    }
    if (frame->symbol) {
        fputs(" (", out);
        put_text(out, frame->symbol, strlen(frame->symbol));
        putc(')', out);
    }
    if (caller->via != caller->frame && via->symbol) {
        fputs(" by ", out);
        put_text(out, via->symbol, strlen(via->symbol));
    }
    putc('\n', out);
}

static void callers_by(FILE *out, const struct past *past,
                       struct past_process *process, enum past_by by,
                       size_t top)
{
    static const char *const what[] = {"count", "bytes", "registrations hit"};
    size_t n = process->callers < top ? process->callers : top;

    past_sort_callers(process, by);
    while (n && !past_value(&process->caller[n - 1].sum, by))
        n--;
    if (!n)
        return;
    fprintf(out, "  Callers by %s", what[by]);
    if (n < process->callers)
        fprintf(out, ", %zu of %zu", n, process->callers);
    fprintf(out, ":\n  %9s %7s %8s\n", "releases", "bytes", "hits");
    for (size_t i = 0; i < n; i++)
        caller_print(out, past, &process->caller[i]);
}

/* Is it the same list once more? */
static bool order_differs(struct past_process *process, enum past_by by,
                          size_t top)
{
    const struct past_caller *c = process->caller;
    uint64_t most = 0; /* of all behind */

    past_sort_callers(process, PAST_BY_COUNT);
    for (size_t i = process->callers; i--;) {
        uint64_t value = past_value(&c[i].sum, by);

        if (i < top && value < most)
            return true;
        if (value > most)
            most = value;
    }
    return false;
}

static void callers(FILE *out, const struct past *past,
                    struct past_process *process, size_t top)
{
    callers_by(out, past, process, PAST_BY_COUNT, top);
    if (order_differs(process, PAST_BY_BYTES, top))
        callers_by(out, past, process, PAST_BY_BYTES, top);
    if (process->sum.hits && order_differs(process, PAST_BY_HITS, top))
        callers_by(out, past, process, PAST_BY_HITS, top);
}

static void subscriber_print(FILE *out, unsigned who,
                             const struct past_subscriber *s)
{
    char median[16], p99[16], most[16];

    fprintf(out, "  subscriber %u:", who);
    fprintf(out,
            " %" PRIu64 " watch%s, %" PRIu64 " taken back; %" PRIu64
            " record%s, %" PRIu64 " deliver%s",
            s->watches, s->watches == 1 ? "" : "es", s->unwatches, s->published,
            plural(s->published), s->delivered,
            s->delivered == 1 ? "y" : "ies");
    if (s->open)
        fprintf(out, " (%" PRIu64 " in progress)", s->open);
    if (s->called)
        fprintf(out, ", %" PRIu64 " by an inline handler", s->called);
    putc('\n', out);
    if (s->told)
        fprintf(out,
                "    waited until told: median %s, 99 %% within %s, at most "
                "%s\n",
                duration(s->median, median), duration(s->p99, p99),
                duration(s->most, most));
    if (s->untold)
        fprintf(out, "    %" PRIu64 " record%s %s not told in this trace\n",
                s->untold, plural(s->untold), s->untold == 1 ? "was" : "were");
    if (s->overflows)
        fprintf(out,
                "    OVERFLOW %" PRIu64 " time%s: its records were lost, and "
                "it was told that everything may have gone\n",
                s->overflows, plural(s->overflows));
}

static void subscribers(FILE *out, const struct past_process *process)
{
    char most[16], last[16];

    for (unsigned i = 0; i < PAST_SUBSCRIBERS; i++) {
        const struct past_subscriber *s = &process->subscriber[i];

        if (s->watches || s->unwatches || s->published || s->delivered ||
            s->overflows)
            subscriber_print(out, i, s);
    }
    if (process->watches)
        fprintf(out, "  watched: at most %s at once, %s at the end\n",
                human(process->watched_most, most),
                human(process->watched_last, last));
}

static void own_events(FILE *out, const struct past_process *process)
{
    for (size_t i = 0; i < process->types; i++) {
        if (!process->type[i].count)
            continue;
        fputs("  event ", out);
        if (process->type[i].name)
            put_name(out, process->type[i].name);
        else /* it found no room there, as the disk was full */
            fprintf(out, "of type %zu", i);
        fprintf(out, ": %" PRIu64 "\n", process->type[i].count);
    }
}

static void when(FILE *out, const struct past_process *process)
{
    const struct trace_header *head = &process->head;
    time_t seconds = (time_t)(head->start.realtime / 1000000000u);
    struct tm tm;
    char text[64], span[16];

    if (gmtime_r(&seconds, &tm) && strftime(text, sizeof(text), "%F %T", &tm))
        fprintf(out, "  from %s.%03u UTC, ", text,
                (unsigned)(head->start.realtime / 1000000 % 1000));
    fprintf(out, "%s%s\n", duration(process->last - process->begin, span),
            head->ended ? ", until it ended" : "; it did not end by exit");
}

static void counts(FILE *out, const struct past_process *process)
{
    const struct trace_header *head = &process->head;
    char span[16];

    fprintf(out,
            "  %" PRIu64 " record%s read, %" PRIu64
            " overwritten before, %" PRIu64 " found no ring",
            process->read, plural(process->read), process->overwritten,
            head->lost);
    if (head->stack_bytes)
        fprintf(out, ", %" PRIu64 " without stack\n", head->stackless);
    else
        fputs("; stacks were not asked for\n", out);
    if (process->unread)
        fprintf(out,
                "  %" PRIu64 " stack%s cannot be read: the file of the library "
                "that copied %s is gone\n    or another one now\n",
                process->unread, plural(process->unread),
                process->unread == 1 ? "it" : "them");
    if (process->complete > process->begin)
        fprintf(out, "  none of the last %s was overwritten\n",
                duration(process->last - process->complete, span));
    if (process->damaged)
        fprintf(out, "  %" PRIu64 " places of the file make no sense\n",
                process->damaged);
    if (head->segments_lost)
        fprintf(out, "  %" PRIu64 " modules found no room in the map\n",
                head->segments_lost);
}

static void process_print(FILE *out, const struct past *past,
                          struct past_process *process, size_t top)
{
    const struct trace_header *head = &process->head;

    fputs("lapse: ", out);
    put_text(out, head->name, sizeof(head->name));
    fprintf(out, " (pid %" PRIu32 "): ", head->pid);
    put_text(out, head->arguments, sizeof(head->arguments));
    putc('\n', out);
    when(out, process);
    counts(out, process);
    if (process->sum.count ||
        process->by[LAPSE_PATH_FREE][LAPSE_REASON_FREE].count)
        table(out, process->by, &process->sum);
    else
        fputs("  Nothing was released.\n", out);
    subscribers(out, process);
    own_events(out, process);
    callers(out, past, process, top);
}

static void sum_add(struct past_sum *to, const struct past_sum *from)
{
    to->count += from->count;
    to->bytes += from->bytes;
    to->hits += from->hits;
    for (unsigned i = 0; i < 4; i++)
        to->inside[i] += from->inside[i];
}

static void total(FILE *out, const struct past *past)
{
    static struct past_sum by[LAPSE_PATH_COUNT][PAST_REASONS];
    struct past_sum sum = {0};

    for (size_t i = 0; i < past->processes; i++) {
        sum_add(&sum, &past->process[i]->sum);
        for (unsigned p = 0; p < LAPSE_PATH_COUNT; p++)
            for (unsigned r = 0; r < PAST_REASONS; r++)
                sum_add(&by[p][r], &past->process[i]->by[p][r]);
    }
    fprintf(out, "lapse: all %zu processes\n", past->processes);
    table(out, by, &sum);
}

void past_print(struct past *past, FILE *out, size_t top)
{
    size_t n = past->processes < SHOWN ? past->processes : SHOWN;

    if (n < past->processes)
        qsort(past->process, past->processes, sizeof(*past->process), past_rank);
    for (size_t i = 0; i < n; i++)
        process_print(out, past, past->process[i], top);
    if (n < past->processes)
        fprintf(out,
                "lapse: %zu more processes, which released less "
                "(--json shows all)\n",
                past->processes - n);
    if (past->processes > 1)
        total(out, past);
}
