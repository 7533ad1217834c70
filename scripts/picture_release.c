/* SPDX-License-Identifier: BSD-3-Clause */
/* The marks of releases, what is said of them, and the names of the largest. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "picture_mark.h"
#include "reports.h"
#include "text.h"

enum {
    CAPTIONS = 10,
    RINGS = 60 /* around hits; of more one would see nothing else */
};

void picture_times(FILE *out, uint64_t from, uint64_t to)
{
    char text[16], more[16];

    fprintf(out, "&#10;at %s", duration(from, text));
    if (to > from)
        fprintf(out, " to %s", duration(to, more));
}

static void put_caller(const struct picture *p, FILE *out, const char *by,
                       const struct past_event *e)
{
    const struct past_stack *stack;
    char room[512];

    if (picture_of_file(e) || e->stack >= p->past->stacks ||
        !p->past->stack[e->stack].depth)
        return;
    stack = &p->past->stack[e->stack];
    fputs(by, out);
    put_xml(out, past_frame_name(&p->past->frame[stack->frame[stack->caller]],
                                 room, sizeof(room)));
}

static void put_title(struct picture *p, const struct mark *mark, int32_t unit)
{
    static const char *const inside[] = {"", ", in an allocator",
                                         ", in the loader", ", in libc"};
    const struct past_event *e = &p->process->event[mark->sample];
    uint64_t from = e->ns, to = e->ns;
    char bytes[16];

    if (mark->count > 1) {
        from = picture_ns(p, mark->x);
        to = picture_ns(p, mark->x + unit);
    }
    fprintf(p->out, "<title>%" PRIu64 " release%s: %s, %s%s", mark->count,
            mark->count == 1 ? "" : "s", reports_reason_name(mark->what),
            human(mark->bytes, bytes),
            mark->hit ? "; hit what was watched" : "");
    picture_times(p->out, from - p->process->begin, to - p->process->begin);
    fprintf(p->out, "&#10;%s0x%" PRIx64 " to 0x%" PRIx64 " (%s%s)",
            mark->count > 1 ? "one: " : "", e->start, e->end,
            picture_of_file(e) ? "a file was cut" : reports_path_name(e->path),
            inside[e->inside]);
    put_caller(p, p->out, "&#10;by ", e);
    fputs("</title>", p->out);
}

/* Wider for more bytes; where many fell together, darker for more of them. A
 * hit has a ring around it, or is all red when there are many. */
static void put_mark(struct picture *p, const struct mark *mark, int32_t unit,
                     bool rings, double most)
{
    double width = 2 + log2(1 + (double)mark->bytes / 4096) / 2.5;
    double height = mark->bottom - mark->top;
    double dark = 0.75;

    if (unit > 1) {
        width = unit;
        dark = 0.12 + 0.88 * log2(1 + (double)mark->count) / log2(1 + most);
    }
    if (height < 2.5)
        height = 2.5;
    fprintf(p->out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
            "fill=\"%s\" fill-opacity=\"%.2f\"%s>",
            unit > 1 ? mark->x : mark->x - width / 2, p->y + mark->top, width,
            height, picture_colour(mark->what), dark,
            !mark->hit ? ""
            : rings    ? " class=\"h\""
                       : " class=\"d\"");
    put_title(p, mark, unit);
    fputs("</rect>\n", p->out);
    if (mark->hit && rings)
        fprintf(p->out,
                "<circle class=\"h\" cx=\"%d\" cy=\"%.1f\" r=\"%.1f\"/>\n",
                mark->x, p->y + mark->top + height / 2,
                3.5 + log2((double)mark->count) / 2);
}

static int bytes_order(const void *left, const void *right)
{
    const struct mark *a = *(struct mark *const *)left;
    const struct mark *b = *(struct mark *const *)right;

    return a->bytes > b->bytes ? -1 : a->bytes < b->bytes;
}

static void put_caption(struct picture *p, const struct mark *mark)
{
    const struct past_event *e = &p->process->event[mark->sample];
    bool left = mark->x > PICTURE_LEFT + PICTURE_WIDTH * 3 / 4;
    double y = p->y + (mark->top + mark->bottom) / 2.0 + 4;
    char bytes[16];

    fprintf(p->over,
            "<text class=\"c\" x=\"%d\" y=\"%.1f\" text-anchor=\"%s\">%s ",
            left ? mark->x - 9 : mark->x + 9, y, left ? "end" : "start",
            human(mark->bytes, bytes));
    if (mark->count > 1)
        fprintf(p->over, "in %" PRIu64 " ", mark->count);
    fputs(picture_of_file(e) ? "cut of a file" : reports_path_name(e->path),
          p->over);
    put_caller(p, p->over, " by ", e);
    fputs("</text>\n", p->over);
}

/* The largest are named, where their names do not cover each other. */
static void put_captions(struct picture *p, const struct marks *m)
{
    struct mark **by = calloc(m->n + 1, sizeof(*by)), *put[CAPTIONS];
    size_t done = 0;

    for (size_t i = 0; by && i < m->n; i++)
        by[i] = &m->mark[i];
    if (by)
        qsort(by, m->n, sizeof(*by), bytes_order);
    for (size_t i = 0; by && i < m->n && i < 50 && done < CAPTIONS &&
                       by[i]->bytes * 100 > p->process->sum.bytes;
         i++) {
        size_t k = 0;

        while (k < done && (abs(put[k]->top + put[k]->bottom - by[i]->top -
                                by[i]->bottom) > 26 ||
                            abs(put[k]->x - by[i]->x) > 260))
            k++;
        if (k < done)
            continue;
        put[done++] = by[i];
        put_caption(p, by[i]);
    }
    free(by);
}

/* Those that hit come last, on top. */
void picture_releases(struct picture *p)
{
    struct marks m = {0};
    size_t hits = 0;
    uint64_t most = 1;

    for (size_t i = 0; i < p->process->events; i++) {
        const struct past_event *e = &p->process->event[i];
        struct mark mark;

        if (!picture_draws(e))
            continue;
        mark = picture_mark(p, e->start, e->end);
        mark.x = mark.x2 = (int32_t)picture_x(p, e->ns);
        mark.what = e->reason < PAST_REASONS ? e->reason : 0;
        mark.hit = (picture_of_file(e) || e->hits) &&
                   past_meets(p->process, e->ns, e->start, e->end) != SIZE_MAX;
        mark.sample = i;
        marks_add(&m, mark);
    }
    marks_thin(&m);
    for (size_t i = 0; i < m.n; i++) {
        hits += m.mark[i].hit;
        most = m.mark[i].count > most ? m.mark[i].count : most;
    }
    for (size_t i = 0; i < m.n; i++)
        put_mark(p, &m.mark[i], m.unit, hits <= RINGS, (double)most);
    put_captions(p, &m);
    free(m.mark);
}
