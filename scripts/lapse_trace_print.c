/* SPDX-License-Identifier: BSD-3-Clause */
/* One record a line, for people. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "build_id.h"
#include "lapse_trace.h"
#include "reports.h"
#include "symbols.h"
#include "text.h"

/* Whether the file of a segment is the one that was loaded: asked once. */
static bool file_is_its(struct trace *t, const struct trace_segment *segment)
{
    static struct known {
        const struct trace_segment *segment;
        bool is;
    } known[256];
    struct known *k = &known[(uintptr_t)segment / 64 % 256];

    if (k->segment != segment)
        *k = (struct known){segment,
                            build_id_is(segment,
                                        trace_realtime(t, segment->loaded))};
    return k->is;
}

struct place place_of(struct trace *t, uint64_t pc, uint64_t ticks)
{
    struct place p = {.segment = trace_segment(t, pc - 1, ticks)};

    if (!p.segment)
        return p;
    p.offset = pc - p.segment->bias;
    /* The call, not what comes behind it, which may be another function. */
    if (file_is_its(t, p.segment))
        p.symbol = symbols_find(p.segment->name, p.offset - 1);
    return p;
}

static void put_range(FILE *out, uint64_t start, uint64_t end)
{
    static const char units[] = "BKMGTPE";
    uint64_t bytes = end - start;
    double value = (double)bytes;
    unsigned unit = 0;

    for (; value >= 1023.95 && units[unit + 1]; unit++)
        value /= 1024;
    if (!start) /* of a file: how much, at most */
        fputs(end ? " " : " ?", out);
    else
        fprintf(out, " %" PRIx64 "-%" PRIx64 " ", start, end);
    if (!end)
        return;
    if (!unit)
        fprintf(out, "%" PRIu64, bytes);
    else
        fprintf(out, "%.4g%c", value, units[unit]);
}

static void put_told(FILE *out, uint64_t subscribers)
{
    const char *between = " told ";

    for (unsigned i = 0; i < 64; i++) {
        if (!(subscribers >> i & 1))
            continue;
        fprintf(out, "%s%u", between, i);
        between = ",";
    }
}

static void put_release(FILE *out, struct source *s,
                        const struct trace_release *r)
{
    struct place p = place_of(s->trace, r->pc, r->head.ticks);
    const struct told *told = &s->told[s->ring];

    fprintf(out, " %s %s", reports_path_name(r->path),
            reports_reason_name(r->reason));
    put_range(out, r->start, r->end);
    if (r->inside)
        fprintf(out, " in %s", trace_inside_name(r->inside));
    if (told->turn == r->head.turn)
        put_told(out, told->subscribers);
    if (!p.segment) {
        fprintf(out, " by 0x%" PRIx64, r->pc);
        return;
    }
    fputs(" by ", out);
    put_name(out, base_name(p.segment->name));
    fprintf(out, "+0x%" PRIx64, p.offset);
    if (p.symbol) {
        fputs(" (", out);
        put_name(out, p.symbol);
        putc(')', out);
    }
}

static void put_event(FILE *out, struct source *s, const struct trace_user *u)
{
    const struct trace_type *type = trace_type(s->trace, u->type);

    putc(' ', out);
    if (type)
        put_name(out, type->name);
    else
        fprintf(out, "type %" PRIu32, u->type);
    trace_print_event(out, u, type, false);
}

void trace_print(FILE *out, struct source *s, uint64_t zero)
{
    const struct trace_record *record = s->record;
    const struct trace_told *told = (const void *)record;
    uint64_t ns = s->realtime > zero ? s->realtime - zero : 0;

    fprintf(out, "%6" PRIu64 ".%09" PRIu64 " %" PRIu32 "/%" PRIu32 " ",
            ns / 1000000000, ns % 1000000000, trace_head(s->trace)->pid,
            record->tid);
    if (!strcmp(trace_kind_name(record->kind), "?"))
        fprintf(out, "kind %u", record->kind);
    else
        fputs(trace_kind_name(record->kind), out);
    if (record->kind == TRACE_RELEASE) {
        put_release(out, s, (const void *)record);
    } else if (record->kind == TRACE_USER) {
        put_event(out, s, (const void *)record);
    } else if (record->kind > TRACE_RELEASE && record->kind < TRACE_USER) {
        fprintf(out, " to %" PRIu32, told->subscriber);
        if (record->kind <= TRACE_OVERFLOW)
            fprintf(out, " %s", reports_reason_name(told->reason));
        if (record->kind == TRACE_UNWATCH && !told->start &&
            told->end == UINT64_MAX)
            fputs(" all, as the subscription ends", out);
        else
            put_range(out, told->start, told->end);
        if (told->seq)
            fprintf(out, " seq %" PRIu64, told->seq);
        if (record->kind == TRACE_DELIVER && record->flags & TRACE_EVENT_OPEN)
            fputs(" open", out);
        if (record->kind == TRACE_PUBLISH && record->flags & TRACE_INLINE)
            fputs(" inline", out);
    }
    putc('\n', out);
}

void trace_print_summary(FILE *out, struct source *s)
{
    const struct trace_header *h = trace_head(s->trace);

    put_name(out, h->name);
    fprintf(out, " (pid %" PRIu32 "): %" PRIu64 " records", h->pid,
            trace_read(s->trace));
    for (unsigned i = 0; i < TRACE_USER + 1; i++)
        if (s->kinds[i])
            fprintf(out, ", %" PRIu64 " %s", s->kinds[i], trace_kind_name(i));
    fprintf(out,
            "\n  overwritten %" PRIu64 ", lost %" PRIu64 ", without stack %"
            PRIu64 ", modules lost %" PRIu64 ", damaged %" PRIu64 "; %s\n",
            trace_overwritten(s->trace), h->lost, h->stackless,
            h->segments_lost, trace_damaged(s->trace),
            h->ended   ? "ended"
            : s->over ? "ended without exit"
                       : "running");
}
