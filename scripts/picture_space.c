/* SPDX-License-Identifier: BSD-3-Clause */
/* The address space over time: what is in a zone, who watches, what goes. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "picture_mark.h"
#include "text.h"

#define HEAP "heap (brk)"

static void fold(struct picture *p)
{
    const struct past_process *process = p->process;
    struct space_range *range = NULL;
    size_t n = 0, room = 0;
    uint64_t least;

    for (size_t i = 0; i < process->events + process->watches; i++) {
        const struct past_event *e = &process->event[i];
        const struct past_watch *w = &process->watch[i - process->events];

        if (i < process->events && !picture_draws(e))
            continue;
        if (n == room)
            range = past_grow(range, &room, sizeof(*range));
        range[n++] = i < process->events
                         ? (struct space_range){e->start, e->end}
                         : (struct space_range){w->start, w->end};
    }
    least = space_bytes(range, n) / 8;
    space_fold(&p->space, range, n, PICTURE_ZONES,
               least > 1 << 20 ? least : 1 << 20);
    for (size_t i = 0; i < process->events; i++)
        if (p->space.zones && picture_draws(&process->event[i]))
            p->space.zone[space_zone_at(&p->space, process->event[i].start)]
                .uses++;
    space_place(&p->space, PICTURE_SPACE, 7);
    free(range);
}

/* What a release says of the memory that it was of. */
static void kind_of(const struct picture *p, const struct past_event *e,
                    char *text, size_t size)
{
    if (picture_of_file(e))
        snprintf(text, size, "files");
    else if (e->module)
        snprintf(text, size, "%s",
                 base_name(p->past->frame[e->module - 1].module));
    else if (e->path == LAPSE_PATH_BRK)
        snprintf(text, size, HEAP);
    else if (e->inside == 1)
        snprintf(text, size, "allocator's mappings");
    else if (e->inside == 2)
        snprintf(text, size, "loaded modules");
    else if (e->inside == 3)
        snprintf(text, size, "thread stacks");
    else
        snprintf(text, size, "mappings");
}

enum { KINDS = 16, LETTERS = 34 /* that fit left of the plot */ };

struct kind {
    char text[64];
    uint64_t count;
};

struct kinds {
    struct kind kind[KINDS];
    size_t n, more;
    uint64_t releases, bytes;
};

static int kind_order(const void *left, const void *right)
{
    const struct kind *a = left, *b = right;
    bool x = !strcmp(a->text, HEAP), y = !strcmp(b->text, HEAP);

    if (x != y)
        return x ? -1 : 1; /* what else an allocator does there is of it */
    return a->count > b->count ? -1 : a->count < b->count;
}

static void kinds_add(struct kinds *k, const char *text)
{
    size_t i = 0;

    while (i < k->n && strcmp(k->kind[i].text, text))
        i++;
    if (i == KINDS) {
        k->more++;
        return;
    }
    if (i == k->n)
        snprintf(k->kind[k->n++].text, sizeof(k->kind->text), "%s", text);
    k->kind[i].count++;
}

static void zone_kinds(const struct picture *p, struct kinds *kinds)
{
    for (size_t i = 0; i < p->process->events; i++) {
        const struct past_event *e = &p->process->event[i];
        struct kinds *k = &kinds[space_zone_at(&p->space, e->start)];
        char text[64];

        if (!picture_draws(e))
            continue;
        kind_of(p, e, text, sizeof(text));
        kinds_add(k, text);
        k->releases++;
        k->bytes += past_bytes(e);
    }
    for (size_t i = 0; i < p->space.zones; i++)
        qsort(kinds[i].kind, kinds[i].n, sizeof(struct kind), kind_order);
}

/* "heap (brk)", "mappings, libm.so.6 +3": as many as there is room for. */
static void zone_name(const struct kinds *k, char *text, size_t size)
{
    size_t at = 0, i;

    snprintf(text, size, "watched only");
    for (i = 0; i < k->n; i++) {
        if (i && at + strlen(k->kind[i].text) > LETTERS - 5)
            break;
        at += (size_t)snprintf(text + at, size - at, "%s%.*s", i ? ", " : "",
                               LETTERS, k->kind[i].text);
    }
    if (k->n > i)
        snprintf(text + at, size - at, " +%zu", k->n - i + k->more);
}

static void put_zone(struct picture *p, const struct space_zone *zone,
                     const struct kinds *k)
{
    char name[160], bytes[16], more[96], released[16];
    double middle = p->y + (zone->top + zone->bottom) / 2;
    bool two = zone->bottom - zone->top >= 26;

    zone_name(k, name, sizeof(name));
    snprintf(more, sizeof(more), "0x%" PRIx64 ", %s", zone->start,
             human(zone->end - zone->start, bytes));
    fprintf(p->out,
            "<g><title>0x%" PRIx64 " to 0x%" PRIx64 ", %s&#10;%" PRIu64
            " releases, %s",
            zone->start, zone->end, bytes, k->releases,
            human(k->bytes, released));
    for (size_t i = 0; i < k->n; i++) {
        fputs("&#10;", p->out);
        put_xml(p->out, k->kind[i].text);
        fprintf(p->out, ": %" PRIu64, k->kind[i].count);
    }
    fprintf(p->out,
            "</title><rect class=\"z\" x=\"%d\" y=\"%.1f\" width=\"%d\" "
            "height=\"%.1f\"/>",
            PICTURE_LEFT, p->y + zone->top, PICTURE_WIDTH,
            zone->bottom - zone->top);
    picture_label(p, two ? middle - 2 : middle + 4, name, two ? more : NULL);
    fputs("</g>\n", p->out);
}

static void put_watches(struct picture *p)
{
    struct marks m = {0};

    for (size_t i = 0; i < p->process->watches; i++) {
        const struct past_watch *w = &p->process->watch[i];
        struct mark mark = picture_mark(p, w->start, w->end);

        mark.x = (int32_t)picture_x(p, w->from);
        mark.x2 = (int32_t)ceil(picture_x(p, w->to));
        mark.what = w->subscriber;
        mark.sample = i;
        marks_add(&m, mark);
    }
    marks_thin(&m);
    for (size_t i = 0; i < m.n; i++) {
        const struct mark *mark = &m.mark[i];
        const struct past_watch *w = &p->process->watch[mark->sample];
        char bytes[16];

        fprintf(p->out,
                "<rect class=\"w\" x=\"%d\" y=\"%.1f\" width=\"%d\" "
                "height=\"%d\"><title>%" PRIu64 " watch%s of subscriber %u, "
                "%s&#10;0x%" PRIx64 " to 0x%" PRIx64,
                mark->x, p->y + mark->top,
                mark->x2 > mark->x ? mark->x2 - mark->x : 1,
                mark->bottom > mark->top + 2 ? mark->bottom - mark->top : 2,
                mark->count, mark->count == 1 ? "" : "es", mark->what,
                human(mark->bytes, bytes), w->start, w->end);
        picture_times(p->out, w->from - p->process->begin,
                      w->to - p->process->begin);
        fputs(w->open ? "&#10;never taken back</title></rect>\n"
                      : "</title></rect>\n",
              p->out);
    }
    free(m.mark);
}

void picture_space(struct picture *p)
{
    struct kinds *kinds = calloc(SPACE_ZONES, sizeof(*kinds));

    fold(p);
    if (kinds)
        zone_kinds(p, kinds);
    for (size_t i = 0; kinds && i < p->space.zones; i++)
        put_zone(p, &p->space.zone[i], &kinds[i]);
    free(kinds);
    if (!p->space.zones)
        return;
    put_watches(p);
    picture_releases(p);
    p->y += PICTURE_SPACE;
}
