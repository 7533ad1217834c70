/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The past in the Trace Event Format, which ui.perfetto.dev and
 * chrome://tracing open: releases and a program's own events as instants on
 * the thread that made them; records that wait and watches as async slices; the
 * bytes released and watched as counters.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "past.h"
#include "reports.h"
#include "steps.h"

enum { SAMPLES = 4000 }; /* of a counter, of one process, at most */

struct writer {
    FILE *out;
    const struct past *past;
    const struct past_process *process;
    bool more;   /* a comma comes first */
    uint64_t id; /* of async slices: each once in the file */
};

/* What each event begins with; the caller goes on with its own keys and }. */
static void begin(struct writer *w, const char *phase, uint64_t ns,
                  uint32_t tid)
{
    fprintf(w->out,
            "%s\n{\"ph\":\"%s\",\"ts\":%" PRIu64 ".%03u,\"pid\":%" PRIu32
            ",\"tid\":%" PRIu32,
            w->more ? "," : "", phase, ns / 1000, (unsigned)(ns % 1000),
            w->process->head.pid, tid);
    w->more = true;
}

static void put_name(struct writer *w, const char *name)
{
    fputs(",\"name\":", w->out);
    json_string(w->out, name, strlen(name));
}

static void metadata(struct writer *w, const char *what, uint32_t tid,
                     const char *name)
{
    begin(w, "M", 0, tid);
    put_name(w, what);
    fputs(",\"args\":{\"name\":", w->out);
    json_string(w->out, name, strlen(name));
    fputs("}}", w->out);
}

static int tid_order(const void *left, const void *right)
{
    const uint32_t *a = left, *b = right;

    return *a < *b ? -1 : *a > *b;
}

static void threads(struct writer *w)
{
    size_t n = 0, room = 0;
    uint32_t *tid = NULL;
    char name[32];

    for (size_t i = 0; i < w->process->events; i++) {
        if (i && w->process->event[i].tid == w->process->event[i - 1].tid)
            continue;
        if (n == room)
            tid = past_grow(tid, &room, sizeof(*tid));
        tid[n++] = w->process->event[i].tid;
    }
    if (n)
        qsort(tid, n, sizeof(*tid), tid_order);
    for (size_t i = 0; i < n; i++) {
        if (i && tid[i] == tid[i - 1])
            continue;
        snprintf(name, sizeof(name), "thread %" PRIu32, tid[i]);
        metadata(w, "thread_name", tid[i],
                 tid[i] == w->process->head.pid ? w->process->head.name : name);
    }
    free(tid);
}

static void put_range(struct writer *w, uint64_t start, uint64_t end)
{
    fprintf(w->out,
            "\"range\":\"0x%" PRIx64 "-0x%" PRIx64 "\",\"bytes\":%" PRIu64,
            start, end, end > start ? end - start : 0);
}

static void put_stack(struct writer *w, const struct past_stack *stack)
{
    char room[512];

    fputs(",\"stack\":[", w->out);
    for (uint32_t i = 0; i < stack->depth; i++) {
        const char *name = past_frame_name(&w->past->frame[stack->frame[i]],
                                           room, sizeof(room));

        fputs(i ? "," : "", w->out);
        json_string(w->out, name, strlen(name));
    }
    putc(']', w->out);
}

static void put_release(struct writer *w, const struct past_event *e)
{
    static const char *const inside[] = {"", "allocator", "loader", "libc"};

    begin(w, "i", e->ns, e->tid);
    put_name(w, reports_path_name(e->path));
    fputs(",\"s\":\"t\",\"cat\":\"release\",\"args\":{", w->out);
    put_range(w, e->start, e->end);
    fprintf(w->out, ",\"reason\":\"%s\",\"hits\":%" PRIu32,
            reports_reason_name(e->reason), e->hits);
    if (e->inside)
        fprintf(w->out, ",\"inside\":\"%s\"", inside[e->inside]);
    if (e->stack < w->past->stacks)
        put_stack(w, &w->past->stack[e->stack]);
    fputs("}}", w->out);
}

static void put_user(struct writer *w, const struct past_event *e)
{
    const struct past_process *p = w->process;

    begin(w, "i", e->ns, e->tid);
    put_name(w, e->type < p->types && p->type[e->type].name
                    ? p->type[e->type].name
                    : "event");
    fputs(",\"s\":\"t\",\"cat\":\"event\",\"args\":{\"data\":\"", w->out);
    for (uint32_t i = 0; i < e->len; i++)
        fprintf(w->out, "%02x", p->data[e->data + i]);
    fputs("\"}}", w->out);
}

/* One end of a slice, on the track of that name; b or e. */
static void put_end(struct writer *w, const char *phase, const char *category,
                    uint32_t subscriber, uint64_t ns)
{
    char name[64];

    snprintf(name, sizeof(name), "subscriber %" PRIu32 ": %s", subscriber,
             category);
    begin(w, phase, ns, w->process->head.pid);
    put_name(w, name);
    fprintf(w->out, ",\"cat\":\"%s\",\"id\":\"0x%" PRIx64 "\"", category,
            w->id);
}

static void put_wait(struct writer *w, const struct past_wait *wait)
{
    if (wait->called)
        return;
    w->id++;
    put_end(w, "b", "waiting", wait->subscriber, wait->from);
    fputs(",\"args\":{", w->out);
    put_range(w, wait->start, wait->end);
    fprintf(w->out, ",\"reason\":\"%s\",\"seq\":%" PRIu64 ",\"told\":%s}}",
            reports_reason_name(wait->reason), wait->seq,
            wait->told ? "true" : "false");
    put_end(w, "e", "waiting", wait->subscriber, wait->to);
    putc('}', w->out);
}

static void put_watch(struct writer *w, const struct past_watch *watch)
{
    w->id++;
    put_end(w, "b", "watching", watch->subscriber, watch->from);
    fputs(",\"args\":{", w->out);
    put_range(w, watch->start, watch->end);
    fputs("}}", w->out);
    put_end(w, "e", "watching", watch->subscriber, watch->to);
    putc('}', w->out);
}

static void put_told(struct writer *w, const struct past_event *e)
{
    begin(w, "i", e->ns, e->tid);
    put_name(w, e->kind == TRACE_OVERFLOW ? "OVERFLOW" : "deliver");
    fputs(",\"s\":\"t\",\"cat\":\"deliver\",\"args\":{", w->out);
    put_range(w, e->start, e->end);
    fprintf(w->out, ",\"subscriber\":%u,\"seq\":%" PRIu64 ",\"open\":%s}}",
            e->subscriber, e->seq,
            e->flags & TRACE_EVENT_OPEN ? "true" : "false");
}

static void put_counter(struct writer *w, uint64_t ns, const char *name,
                        const char *what, uint64_t value)
{
    begin(w, "C", ns, w->process->head.pid);
    put_name(w, name);
    fprintf(w->out, ",\"args\":{\"%s\":%" PRIu64 "}}", what, value);
}

/* Of each path that released something, at most SAMPLES times. */
static void released(struct writer *w)
{
    const struct past_process *p = w->process;
    uint64_t sum[LAPSE_PATH_COUNT] = {0}, last[LAPSE_PATH_COUNT] = {0};
    uint64_t step = (p->last - p->begin) / SAMPLES, due = 0;

    for (size_t i = 0; i < p->events; i++) {
        const struct past_event *e = &p->event[i];

        if (e->kind == TRACE_RELEASE && e->path < LAPSE_PATH_COUNT)
            sum[e->path] += past_bytes(e);
        if (e->ns < due && i + 1 < p->events)
            continue;
        due = e->ns + step;
        for (unsigned path = 0; path < LAPSE_PATH_COUNT; path++)
            if (sum[path] != last[path]) {
                char name[64];

                snprintf(name, sizeof(name), "released by %s",
                         reports_path_name(path));
                put_counter(w, e->ns, name, "bytes", sum[path]);
                last[path] = sum[path];
            }
    }
}

static void watched(struct writer *w)
{
    const struct past_process *p = w->process;
    uint64_t apart = (p->last - p->begin) / SAMPLES, due = 0, now = 0;
    struct steps s = {0};

    for (size_t i = 0; i < p->watches; i++)
        steps_add(&s, p->watch[i].from,
                  p->watch[i].open ? STEPS_NEVER : p->watch[i].to,
                  p->watch[i].end - p->watch[i].start);
    steps_sort(&s);
    for (size_t i = 0; i < s.n; i++) {
        now += s.step[i].by;
        if (i + 1 < s.n &&
            (s.step[i + 1].ns == s.step[i].ns || s.step[i].ns < due))
            continue;
        due = s.step[i].ns + apart;
        put_counter(w, s.step[i].ns, "watched", "bytes", now);
    }
    free(s.step);
}

static void process_put(struct writer *w)
{
    const struct past_process *p = w->process;

    metadata(w, "process_name", p->head.pid, p->head.name);
    threads(w);
    for (size_t i = 0; i < p->events; i++) {
        const struct past_event *e = &p->event[i];

        if (e->kind == TRACE_RELEASE)
            put_release(w, e);
        else if (e->kind == TRACE_USER)
            put_user(w, e);
        else if (e->kind == TRACE_DELIVER || e->kind == TRACE_OVERFLOW)
            put_told(w, e);
    }
    for (size_t i = 0; i < p->waits; i++)
        put_wait(w, &p->wait[i]);
    for (size_t i = 0; i < p->watches; i++)
        put_watch(w, &p->watch[i]);
    released(w);
    watched(w);
}

void past_perfetto(const struct past *past, FILE *out)
{
    struct writer w = {.out = out, .past = past};

    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", out);
    for (size_t i = 0; i < past->processes; i++) {
        w.process = past->process[i];
        process_put(&w);
    }
    fputs("\n]}\n", out);
}
