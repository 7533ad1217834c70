/* SPDX-License-Identifier: BSD-3-Clause */
/* What is above the address space: how much went when, what waited, what was
 * watched, what the program itself said. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "picture.h"
#include "reports.h"
#include "steps.h"
#include "text.h"

enum { BARS = PICTURE_WIDTH / 4, TALL = 70, LOW = 32 };

static void lane(struct picture *p, double height)
{
    fprintf(p->out,
            "<rect class=\"z\" x=\"%d\" y=\"%.1f\" width=\"%d\" "
            "height=\"%.1f\"/>\n",
            PICTURE_LEFT, p->y, PICTURE_WIDTH, height);
}

static unsigned bar_of(const struct picture *p, uint64_t ns)
{
    double x = (picture_x(p, ns) - PICTURE_LEFT) * BARS / PICTURE_WIDTH;

    return x < 0 ? 0 : x >= BARS ? BARS - 1 : (unsigned)x;
}

struct bar {
    uint64_t bytes[PAST_REASONS], count[PAST_REASONS], all;
};

static void put_bar(struct picture *p, const struct bar *bar, unsigned at,
                    uint64_t most)
{
    const double wide = (double)PICTURE_WIDTH / BARS;
    double y = p->y + TALL;
    char text[16], when[16];

    for (unsigned reason = 0; reason < PAST_REASONS; reason++) {
        double height = (double)bar->bytes[reason] * TALL / (double)most;

        if (!bar->bytes[reason])
            continue;
        if (height < 1)
            height = 1;
        y -= height;
        fprintf(p->out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                "fill=\"%s\"><title>%s: %s in %" PRIu64 " release%s&#10;"
                "from %s on</title></rect>\n",
                PICTURE_LEFT + at * wide, y, wide - 0.5, height,
                picture_colour(reason), reports_reason_name(reason),
                human(bar->bytes[reason], text), bar->count[reason],
                plural(bar->count[reason]),
                duration(picture_ns(p, PICTURE_LEFT + at * wide) -
                             p->process->begin,
                         when));
    }
}

static void put_bytes(struct picture *p)
{
    struct bar *bar = calloc(BARS, sizeof(*bar));
    uint64_t most = 0;
    char bytes[16], more[64];

    for (size_t i = 0; bar && i < p->process->events; i++) {
        const struct past_event *e = &p->process->event[i];
        struct bar *b = &bar[bar_of(p, e->ns)];

        if (e->kind != TRACE_RELEASE || e->path == LAPSE_PATH_FREE ||
            e->reason >= PAST_REASONS)
            continue;
        b->bytes[e->reason] += past_bytes(e);
        b->count[e->reason]++;
        b->all += past_bytes(e);
        if (b->all > most)
            most = b->all;
    }
    lane(p, TALL);
    snprintf(more, sizeof(more), "at most %s in a bar", human(most, bytes));
    picture_label(p, p->y + 32, "bytes released", more);
    for (unsigned i = 0; bar && most && i < BARS; i++)
        put_bar(p, &bar[i], i, most);
    p->y += TALL + 8;
    free(bar);
}

/* The most in each pixel, as one area. */
static void put_area(struct picture *p, const int64_t *most, int64_t highest,
                     const char *class)
{
    fprintf(p->out, "<path class=\"%s\" d=\"M%d %.1f", class, PICTURE_LEFT,
            p->y + LOW);
    for (int x = 0; x < PICTURE_WIDTH; x++) {
        double y = p->y + LOW * (1 - (double)most[x] / (double)highest);

        if (!x || most[x] != most[x - 1])
            fprintf(p->out, "H%dV%.1f", PICTURE_LEFT + x, y);
    }
    fprintf(p->out, "H%dV%.1fZ\"/>\n", PICTURE_LEFT + PICTURE_WIDTH,
            p->y + LOW);
}

static void put_steps(struct picture *p, struct steps *s, const char *name,
                      bool bytes, const char *class)
{
    int64_t most[PICTURE_WIDTH] = {0}, highest = 0;
    uint64_t now = 0;
    char text[16], more[64];
    size_t i = 0;

    steps_sort(s);
    for (int x = 0; x < PICTURE_WIDTH; x++) {
        uint64_t until = picture_ns(p, PICTURE_LEFT + x + 1);

        most[x] = (int64_t)now;
        for (; i < s->n && (s->step[i].ns < until || x + 1 == PICTURE_WIDTH);
             i++) {
            now += s->step[i].by;
            if ((int64_t)now > most[x])
                most[x] = (int64_t)now;
        }
        if (most[x] > highest)
            highest = most[x];
    }
    if (bytes)
        snprintf(more, sizeof(more), "at most %s",
                 human((uint64_t)highest, text));
    else
        snprintf(more, sizeof(more), "at most %" PRId64, highest);
    lane(p, LOW);
    picture_label(p, p->y + 14, name, more);
    if (highest > 0)
        put_area(p, most, highest, class);
    p->y += LOW + 8;
}

static void put_watched(struct picture *p)
{
    struct steps s = {0};

    for (size_t i = 0; i < p->process->watches; i++)
        steps_add(&s, p->process->watch[i].from,
                  p->process->watch[i].open ? STEPS_NEVER
                                            : p->process->watch[i].to,
                  p->process->watch[i].end - p->process->watch[i].start);
    if (s.n)
        put_steps(p, &s, "bytes watched", true, "aw");
    free(s.step);
}

static void put_waiting(struct picture *p)
{
    struct steps s = {0};

    for (size_t i = 0; i < p->process->waits; i++)
        if (!p->process->wait[i].called)
            steps_add(&s, p->process->wait[i].from, p->process->wait[i].to, 1);
    if (s.n)
        put_steps(p, &s, "records not told yet", false, "ap");
    free(s.step);
}

static const char *event_name(const struct picture *p,
                              const struct past_event *e)
{
    const struct past_process *process = p->process;

    if (e->kind == TRACE_OVERFLOW)
        return "OVERFLOW";
    return e->type < process->types && process->type[e->type].name
               ? process->type[e->type].name
               : "event";
}

/* One tick a pixel and name. */
static void put_ticks(struct picture *p, unsigned kind, const char *name,
                      const char *class)
{
    uint64_t total = 0, here = 0;
    char more[32], when[16];
    const double y = p->y;

    for (size_t i = 0; i < p->process->events; i++)
        total += p->process->event[i].kind == kind;
    if (!total)
        return;
    lane(p, 16);
    snprintf(more, sizeof(more), "%s: %" PRIu64, name, total);
    picture_label(p, y + 12, more, NULL);
    for (size_t i = 0, k; i < p->process->events; i = k) {
        const struct past_event *e = &p->process->event[i];
        int x = (int)picture_x(p, e->ns);

        here = e->kind == kind;
        for (k = i + 1; k < p->process->events &&
                        (int)picture_x(p, p->process->event[k].ns) == x;
             k++)
            if (p->process->event[k].kind == kind && !here++)
                e = &p->process->event[k];
        if (!here)
            continue;
        fprintf(p->out,
                "<rect class=\"%s\" x=\"%d\" y=\"%.1f\" width=\"2\" "
                "height=\"16\"><title>",
                class, x, y);
        put_xml(p->out, event_name(p, e));
        if (here > 1)
            fprintf(p->out, ", and %" PRIu64 " more", here - 1);
        fprintf(p->out, "&#10;at %s</title></rect>\n",
                duration(e->ns - p->process->begin, when));
    }
    p->y += 16 + 8;
}

void picture_lanes(struct picture *p)
{
    put_bytes(p);
    put_watched(p);
    put_waiting(p);
    put_ticks(p, TRACE_OVERFLOW, "OVERFLOW", "o");
    put_ticks(p, TRACE_USER, "program's events", "u");
}
