/* SPDX-License-Identifier: BSD-3-Clause */
/* What `lapse stacks` found, for people and as JSON. */
#include <inttypes.h>
#include <string.h>

#include "json.h"
#include "text.h"
#include "threads_print.h"

static void choose(struct remote *r, struct remote_thread *t, bool *shown)
{
    while (t && !shown[t - r->thread]) {
        remote_take(r, t);
        remote_waits(r, t);
        shown[t - r->thread] = true;
        t = stacks_next(r, t);
    }
}

void stacks_choose(struct remote *r, const struct stacks_request *request,
                   bool *shown)
{
    for (size_t i = 0; i < request->threads; i++)
        choose(r, remote_find(r, request->thread[i]), shown);
    for (size_t i = 0; !request->threads && i < r->threads; i++)
        choose(r, &r->thread[i], shown);
}

struct remote_thread *stacks_next(struct remote *r,
                                  const struct remote_thread *t)
{
    return t->wait.holder ? remote_find(r, t->wait.holder) : NULL;
}

bool stacks_circle(struct remote *r, size_t i, bool *perhaps)
{
    struct remote_thread *first = &r->thread[i], *t = first;

    *perhaps = false;
    for (size_t n = 0; t && n <= r->threads; n++) {
        *perhaps |= t->wait.perhaps;
        t = stacks_next(r, t);
        if (t == first)
            return true;
        if (t && t < first)
            return false; /* found from there, if it is one */
    }
    return false;
}

static const char *state_name(char state)
{
    switch (state) {
    case 'R':
        return "running";
    case 'S':
        return "asleep";
    case 'D':
        return "deep in the kernel";
    case 'T':
        return "stopped";
    case 't':
        return "stopped by a debugger";
    case 'Z':
        return "ended";
    default:
        return "state not known";
    }
}

static void print_places(const struct remote_thread *t, FILE *out)
{
    for (size_t i = 0; i < t->places; i++) {
        const struct remote_place *p = &t->place[i];

        fputs(i ? " > " : "  in ", out);
        put_name(out, p->function ? p->function : "?");
        fprintf(out, " (%s", remote_kind_name(p->kind));
        if (p->subscriber >= 0)
            fprintf(out, ", subscriber %d", p->subscriber);
        putc(')', out);
    }
    if (t->places)
        putc('\n', out);
    else if (t->taken)
        fputs("  elsewhere\n", out);
}

static void print_frame(const struct remote_frame *f, size_t i, FILE *out)
{
    fprintf(out, "    #%-3zu ", i);
    if (f->symbol) {
        put_name(out, f->symbol);
        putc(' ', out);
    }
    if (f->module) {
        putc('(', out);
        put_name(out, base_name(f->module->name));
        fprintf(out, "+0x%" PRIx64 ")\n", f->offset);
    } else {
        fprintf(out, "0x%" PRIx64 "\n", f->pc);
    }
}

static void print_thread(const struct remote_thread *t, size_t top, FILE *out)
{
    size_t n = t->frames < top ? t->frames : top;

    fprintf(out, "thread %d \"", (int)t->tid);
    put_name(out, t->name);
    fprintf(out, "\", %s\n", state_name(t->state));
    print_places(t, out);
    if (t->wait.text[0]) {
        fputs(t->wait.kind == WAITS_IN_CALL ? "  is in the call "
                                            : "  waits for ", out);
        put_name(out, t->wait.text);
        putc('\n', out);
    }
    if (!t->taken)
        fprintf(out, "  no stack: %s\n",
                t->trouble ? t->trouble : "it was not looked at");
    for (size_t i = 0; i < n; i++)
        print_frame(&t->frame[i], i, out);
    if (n < t->frames)
        fprintf(out, "    and %zu more (--all-frames)\n", t->frames - n);
    else if (t->taken && !t->whole)
        fputs("    and further, where nothing tells how\n", out);
}

static void print_circle(struct remote *r, size_t first, bool perhaps,
                         FILE *out)
{
    const struct remote_thread *t = &r->thread[first];

    fputs(perhaps ? "Perhaps a deadlock: " : "Deadlock: ", out);
    do {
        fprintf(out, "thread %d waits for %d%s", (int)t->tid,
                (int)t->wait.holder,
                t->wait.holder == r->thread[first].tid ? ".\n" : ", ");
        t = stacks_next(r, t);
    } while (t != &r->thread[first]);
}

void threads_print(struct remote *r, const struct stacks_request *request,
                  const bool *shown, FILE *out)
{
    bool perhaps;

    put_name(out, r->name);
    fprintf(out, " (pid %d), %zu thread%s\n", (int)r->pid, r->threads,
            r->threads == 1 ? "" : "s");
    for (size_t i = 0; i < r->threads; i++)
        if (shown[i])
            print_thread(&r->thread[i], request->top, out);
    for (size_t i = 0; i < r->threads; i++)
        if (shown[i] && stacks_circle(r, i, &perhaps))
            print_circle(r, i, perhaps, out);
}

static void json_frame(const struct remote_frame *f, FILE *out)
{
    fprintf(out, "{\"pc\":\"0x%" PRIx64 "\",\"module\":", f->pc);
    json_string_or_null(out, f->module ? f->module->name : NULL);
    if (f->module)
        fprintf(out, ",\"offset\":\"0x%" PRIx64 "\",\"symbol\":", f->offset);
    else
        fputs(",\"offset\":null,\"symbol\":", out);
    json_string_or_null(out, f->symbol);
    putc('}', out);
}

static void json_places(const struct remote_thread *t, FILE *out)
{
    fputs(",\"in\":[", out);
    for (size_t i = 0; i < t->places; i++) {
        const struct remote_place *p = &t->place[i];

        fprintf(out, "%s{\"kind\":\"%s\",\"function\":", i ? "," : "",
                remote_kind_name(p->kind));
        json_string_or_null(out, p->function);
        fputs(",\"subscriber\":", out);
        if (p->subscriber >= 0)
            fprintf(out, "%d}", p->subscriber);
        else
            fputs("null}", out);
    }
    fprintf(out, "],\"verdict\":\"%s\"",
            t->places ? remote_kind_name(t->place[t->places - 1].kind)
                      : "elsewhere");
}

static void json_wait(const struct remote_wait *w, FILE *out)
{
    if (w->kind == WAITS_NOT) {
        fputs(",\"waits_for\":null", out);
        return;
    }
    fprintf(out, ",\"waits_for\":{\"kind\":\"%s\",\"address\":",
            remote_wait_name(w->kind));
    if (w->address)
        fprintf(out, "\"0x%" PRIx64 "\"", w->address);
    else
        fputs("null", out);
    fputs(",\"held_by\":", out);
    if (w->holder)
        fprintf(out, "%d", (int)w->holder);
    else
        fputs("null", out);
    fprintf(out, ",\"perhaps\":%s,\"text\":", w->perhaps ? "true" : "false");
    json_string(out, w->text, strlen(w->text));
    putc('}', out);
}

static void json_thread(const struct remote_thread *t, size_t top, FILE *out)
{
    size_t n = t->frames < top ? t->frames : top;

    fprintf(out, "{\"tid\":%d,\"name\":", (int)t->tid);
    json_string(out, t->name, strlen(t->name));
    fprintf(out, ",\"state\":\"%c\"", t->state);
    json_places(t, out);
    json_wait(&t->wait, out);
    fputs(",\"trouble\":", out);
    json_string_or_null(out, t->taken ? NULL
                                      : t->trouble ? t->trouble
                                                   : "not looked at");
    fprintf(out, ",\"whole\":%s,\"frames\":[",
            t->whole && n == t->frames ? "true" : "false");
    for (size_t i = 0; i < n; i++) {
        if (i)
            putc(',', out);
        json_frame(&t->frame[i], out);
    }
    fputs("]}", out);
}

static void json_circles(struct remote *r, const bool *shown, FILE *out)
{
    bool first = true, perhaps;

    fputs("],\"deadlocks\":[", out);
    for (size_t i = 0; i < r->threads; i++) {
        const struct remote_thread *t = &r->thread[i];

        if (!shown[i] || !stacks_circle(r, i, &perhaps))
            continue;
        fprintf(out, "%s{\"perhaps\":%s,\"threads\":[%d", first ? "" : ",",
                perhaps ? "true" : "false", (int)t->tid);
        first = false;
        while ((t = stacks_next(r, t)) != &r->thread[i])
            fprintf(out, ",%d", (int)t->tid);
        fputs("]}", out);
    }
    putc(']', out);
}

void threads_print_json(struct remote *r, const struct stacks_request *request,
                       const bool *shown, FILE *out)
{
    bool first = true;

    fprintf(out, "{\"pid\":%d,\"name\":", (int)r->pid);
    json_string(out, r->name, strlen(r->name));
    fputs(",\"threads\":[", out);
    for (size_t i = 0; i < r->threads; i++) {
        if (!shown[i])
            continue;
        if (!first)
            putc(',', out);
        first = false;
        json_thread(&r->thread[i], request->top, out);
    }
    json_circles(r, shown, out);
    putc('}', out);
}
