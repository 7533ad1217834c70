/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time as a scale. Programs work in bursts: long times in which nothing was
 * recorded are folded away, as unused addresses are, and said to be.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "picture.h"
#include "text.h"

enum { BURSTS = 6, APART = 22, LEAST = 46 };

static void time_ranges(const struct past_process *process, struct space *space,
                        uint64_t least)
{
    struct space_range *range = NULL;
    size_t n = 0, room = 0;

    for (size_t i = 0; i < process->events; i++) {
        uint64_t ns = process->event[i].ns;

        if (n && range[n - 1].end + least / 64 >= ns) {
            range[n - 1].end = ns + 1; /* they are in order */
            continue;
        }
        if (n == room)
            range = past_grow(range, &room, sizeof(*range));
        range[n++] = (struct space_range){ns, ns + 1};
    }
    space_fold(space, range, n, BURSTS, least);
    free(range);
}

/* Marks at the ends of a burst are to be seen, too. */
static void widen(struct space *space)
{
    for (size_t i = 0; i < space->zones; i++) {
        struct space_zone *zone = &space->zone[i];
        uint64_t pad = (zone->end - zone->start) / 40 + 500;

        zone->start = zone->start > pad ? zone->start - pad : 0;
        if (i && zone->start < space->zone[i - 1].end)
            zone->start = space->zone[i - 1].end;
        zone->end += pad;
    }
}

void picture_time(struct picture *p)
{
    const struct past_process *process = p->process;
    double sum = 0, at = PICTURE_LEFT, left;
    uint64_t first = process->events ? process->event[0].ns : process->begin;

    time_ranges(process, &p->time, (process->last - first) / 10 + 1);
    if (!p->time.zones)
        p->time = (struct space){
            .zone = {{.start = process->begin, .end = process->last + 1}},
            .zones = 1};
    widen(&p->time);
    for (size_t i = 0; i < p->time.zones; i++)
        sum += sqrt((double)(p->time.zone[i].end - p->time.zone[i].start));
    left = PICTURE_WIDTH - (double)(p->time.zones - 1) * APART -
           (double)p->time.zones * LEAST;
    for (size_t i = 0; i < p->time.zones; i++) {
        struct space_zone *zone = &p->time.zone[i];

        zone->top = at;
        zone->bottom =
            at + LEAST + left * sqrt((double)(zone->end - zone->start)) / sum;
        at = zone->bottom + APART;
    }
}

double picture_x(const struct picture *p, uint64_t ns)
{
    const struct space_zone *zone = &p->time.zone[space_zone_at(&p->time, ns)];

    if (ns <= zone->start)
        return zone->top;
    if (ns >= zone->end) /* within the fold: as its beginning, or the end */
        return zone->bottom;
    return zone->top + (zone->bottom - zone->top) * (double)(ns - zone->start) /
                           (double)(zone->end - zone->start);
}

uint64_t picture_ns(const struct picture *p, double x)
{
    const struct space_zone *zone = &p->time.zone[0];

    for (size_t i = 1; i < p->time.zones; i++)
        if (p->time.zone[i].top <= x)
            zone = &p->time.zone[i];
    if (x >= zone->bottom)
        return zone->end;
    return zone->start + (uint64_t)((double)(zone->end - zone->start) *
                                    (x > zone->top ? x - zone->top : 0) /
                                    (zone->bottom - zone->top));
}

/* 1, 2 or 5 times a power of ten, so that there are no more than `most`. */
static double tick_step(double span, double most)
{
    double step = pow(10, floor(log10(span / most)));

    for (unsigned i = 0; span / step > most; i++)
        step *= i % 3 == 1 ? 2.5 : 2;
    return step < 1 ? 1 : step;
}

/* 1.25 s: as many digits as tell two ticks apart. */
static void put_tick(struct picture *p, double x, double y, double ns,
                     double step)
{
    double unit = ns >= 1e9 || step >= 1e8 ? 1e9
                  : ns >= 1e6              ? 1e6
                  : ns >= 1e3              ? 1e3
                                           : 1;
    double digits = ceil(log10(unit / step) - 1e-9);

    fprintf(p->out,
            "<text class=\"m\" x=\"%.1f\" y=\"%.1f\" "
            "text-anchor=\"middle\">%.*f %s</text>\n",
            x, y, digits < 0 ? 0 : (int)digits, ns / unit,
            unit == 1e9   ? "s"
            : unit == 1e6 ? "ms"
            : unit == 1e3 ? "us"
                          : "ns");
}

static void put_zone_ticks(struct picture *p, const struct space_zone *zone,
                           double bottom)
{
    double begin = (double)(zone->start - p->process->begin);
    double span = (double)(zone->end - zone->start);
    double step = tick_step(span, (zone->bottom - zone->top) / 70 + 0.5);

    if (zone->start < p->process->begin)
        begin = 0;
    if (zone->bottom - zone->top < 70) { /* room for one, in its middle */
        put_tick(p, (zone->top + zone->bottom) / 2, bottom + 16,
                 begin + span / 2, pow(10, floor(log10(begin + 1)) - 2));
        return;
    }
    /* Counted: a damaged trace may say centuries, to which a step adds nothing
     * that a double can tell. */
    for (unsigned i = 0; i <= span / step; i++) {
        double at = ceil(begin / step) * step + i * step;
        double x = picture_x(p, p->process->begin + (uint64_t)at);

        if (at > begin + span)
            break;
        fprintf(p->out, "<path class=\"g\" d=\"M%.1f 0V%.1f\"/>", x,
                bottom + 4);
        put_tick(p, x, bottom + 16, at, step);
    }
}

static void put_fold(struct picture *p, const struct space_zone *before,
                     const struct space_zone *after, double bottom)
{
    char text[16];

    fprintf(p->out,
            "<rect class=\"f\" x=\"%.1f\" y=\"0\" width=\"%d\" "
            "height=\"%.1f\"/><text class=\"m\" text-anchor=\"end\" "
            "transform=\"translate(%.1f,%.1f)rotate(-90)\">%s, nothing "
            "recorded</text>\n",
            before->bottom, APART, bottom + 1, before->bottom + APART / 2 + 4,
            4.0, duration(after->start - before->end, text));
}

void picture_axis(struct picture *p, double bottom)
{
    const struct space_zone *zone = p->time.zone;

    for (size_t i = 0; i < p->time.zones; i++)
        put_zone_ticks(p, &zone[i], bottom);
    for (size_t i = 1; i < p->time.zones; i++)
        put_fold(p, &zone[i - 1], &zone[i], bottom);
    if (p->process->complete > zone->start)
        fprintf(p->out,
                "<rect class=\"v\" x=\"%d\" y=\"0\" width=\"%.1f\" "
                "height=\"%.1f\"><title>of this time some records were "
                "overwritten</title></rect><text class=\"m\" x=\"%d\" "
                "y=\"10\">records overwritten in part</text>\n",
                PICTURE_LEFT, picture_x(p, p->process->complete) - PICTURE_LEFT,
                bottom, PICTURE_LEFT + 6);
}
