/* SPDX-License-Identifier: BSD-3-Clause */
/* One record a line, as JSON. */
#include <inttypes.h>
#include <string.h>

#include "build_id.h"
#include "json.h"
#include "lapse_trace.h"
#include "reports.h"

static void put_range(FILE *out, uint64_t start, uint64_t end)
{
    if (!start && end)
        fprintf(out, ",\"start\":null,\"end\":null,\"bytes\":%" PRIu64, end);
    else if (end > start)
        fprintf(out, ",\"start\":\"0x%" PRIx64 "\",\"end\":\"0x%" PRIx64
                "\",\"bytes\":%" PRIu64, start, end, end - start);
    else
        fputs(",\"start\":null,\"end\":null,\"bytes\":null", out);
}

static void put_id(FILE *out, const struct trace_segment *segment)
{
    char text[65];

    build_id_text(segment->build_id, segment->build_id_len, text);
    fprintf(out, "\"%s\"", text);
}

static void put_place(FILE *out, const struct place *p, uint64_t pc)
{
    fprintf(out, ",\"pc\":\"0x%" PRIx64 "\",\"module\":", pc);
    if (!p->segment) {
        fputs("null,\"build_id\":null,\"offset\":null,\"symbol\":null", out);
        return;
    }
    json_string(out, p->segment->name, strlen(p->segment->name));
    fputs(",\"build_id\":", out);
    put_id(out, p->segment);
    fprintf(out, ",\"offset\":\"0x%" PRIx64 "\",\"symbol\":", p->offset);
    json_string_or_null(out, p->symbol);
}

static void put_release(FILE *out, struct source *s,
                        const struct trace_release *r)
{
    struct place p = place_of(s->trace, r->pc, r->head.ticks);
    const struct told *told = &s->told[s->ring];
    const uint8_t *memory;
    const struct trace_stack *stack = trace_stack_of(&r->head, &memory);
    const char *between = "";

    fprintf(out, ",\"path\":\"%s\",\"reason\":\"%s\"",
            reports_path_name(r->path), reports_reason_name(r->reason));
    put_range(out, r->start, r->end);
    if (r->inside)
        fprintf(out, ",\"inside\":\"%s\"", trace_inside_name(r->inside));
    else
        fputs(",\"inside\":null", out);
    put_place(out, &p, r->pc);
    fputs(",\"told\":[", out);
    for (unsigned i = 0; i < 64; i++) {
        if (told->turn != r->head.turn || !(told->subscribers >> i & 1))
            continue;
        fprintf(out, "%s%u", between, i);
        between = ",";
    }
    fprintf(out, "],\"stack\":%" PRIu64, stack ? stack->bytes : 0);
}

static void put_told(FILE *out, const struct trace_told *told)
{
    put_range(out, told->start, told->end);
    fprintf(out, ",\"seq\":%" PRIu64 ",\"subscriber\":%" PRIu32
            ",\"reason\":", told->seq, told->subscriber);
    json_string_or_null(out, told->head.kind <= TRACE_OVERFLOW
                                 ? reports_reason_name(told->reason)
                                 : NULL);
    if (told->head.kind == TRACE_DELIVER)
        fprintf(out, ",\"open\":%s",
                told->head.flags & TRACE_EVENT_OPEN ? "true" : "false");
    if (told->head.kind == TRACE_PUBLISH)
        fprintf(out, ",\"inline\":%s",
                told->head.flags & TRACE_INLINE ? "true" : "false");
}

static void put_event(FILE *out, struct source *s, const struct trace_user *u)
{
    const struct trace_type *type = trace_type(s->trace, u->type);

    fprintf(out, ",\"type\":%" PRIu32 ",\"event\":", u->type);
    json_string_or_null(out, type ? type->name : NULL);
    putc(',', out);
    trace_print_event(out, u, type, true);
}

void trace_print_json(FILE *out, struct source *s)
{
    const struct trace_record *r = s->record;

    fprintf(out,
            "{\"pid\":%" PRIu32 ",\"tid\":%" PRIu32 ",\"ring\":%u,"
            "\"number\":%" PRIu64 ",\"turn\":%" PRIu32 ",\"ticks\":%" PRIu64
            ",\"ns\":%" PRIu64 ",\"realtime\":%" PRIu64 ",\"kind\":",
            trace_head(s->trace)->pid, r->tid, s->ring, r->number, r->turn,
            r->ticks, trace_ns(s->trace, r->ticks), s->realtime);
    if (strcmp(trace_kind_name(r->kind), "?"))
        fprintf(out, "\"%s\"", trace_kind_name(r->kind));
    else
        fprintf(out, "%u", r->kind);
    if (r->kind == TRACE_RELEASE)
        put_release(out, s, (const void *)r);
    else if (r->kind == TRACE_USER)
        put_event(out, s, (const void *)r);
    else if (r->kind > TRACE_RELEASE && r->kind < TRACE_USER)
        put_told(out, (const void *)r);
    fputs("}\n", out);
}

void trace_print_summary_json(FILE *out, struct source *s)
{
    const struct trace_header *h = trace_head(s->trace);

    fprintf(out, "{\"kind\":\"summary\",\"file\":");
    json_string(out, s->name, strlen(s->name));
    fprintf(out, ",\"pid\":%" PRIu32 ",\"ppid\":%" PRIu32 ",\"name\":",
            h->pid, h->ppid);
    json_string(out, h->name, strlen(h->name));
    fputs(",\"program\":", out);
    json_string(out, h->program, strlen(h->program));
    fputs(",\"arguments\":", out);
    json_string(out, h->arguments, strlen(h->arguments));
    fprintf(out,
            ",\"ended\":%s,\"read\":%" PRIu64 ",\"overwritten\":%" PRIu64
            ",\"lost\":%" PRIu64 ",\"stackless\":%" PRIu64
            ",\"segments_lost\":%" PRIu64 ",\"damaged\":%" PRIu64 "}\n",
            h->ended ? "true" : "false", trace_read(s->trace),
            trace_overwritten(s->trace), h->lost, h->stackless,
            h->segments_lost, trace_damaged(s->trace));
}
