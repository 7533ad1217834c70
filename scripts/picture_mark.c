/* SPDX-License-Identifier: BSD-3-Clause */
#include "picture_mark.h"

#include <math.h>
#include <stdlib.h>

bool picture_of_file(const struct past_event *e)
{
    return e->kind == TRACE_PUBLISH && e->reason == LAPSE_REASON_FILE;
}

bool picture_draws(const struct past_event *e)
{
    return e->end > e->start && ((e->kind == TRACE_RELEASE && e->start &&
                                  e->path != LAPSE_PATH_FREE) ||
                                 picture_of_file(e));
}

struct mark picture_mark(const struct picture *p, uint64_t start, uint64_t end)
{
    double top = space_y(&p->space, end - 1);
    double bottom = space_y(&p->space, start);

    return (struct mark){.top = (int32_t)floor(top),
                         .bottom = (int32_t)ceil(bottom),
                         .count = 1,
                         .bytes = end - start};
}

static int mark_order(const void *left, const void *right)
{
    const struct mark *a = left, *b = right;

#define BY(field)                                                              \
    if (a->field != b->field)                                                  \
    return a->field < b->field ? -1 : 1
    BY(hit);
    BY(what);
    BY(x);
    BY(x2);
    BY(top);
    BY(bottom);
#undef BY
    return 0;
}

void marks_add(struct marks *m, struct mark mark)
{
    if (m->n == m->room)
        m->mark = past_grow(m->mark, &m->room, sizeof(*m->mark));
    m->mark[m->n++] = mark;
}

static void marks_join(struct marks *m)
{
    size_t kept = 0;

    if (m->n)
        qsort(m->mark, m->n, sizeof(*m->mark), mark_order);
    for (size_t i = 0; i < m->n; i++) {
        if (!kept || mark_order(&m->mark[kept - 1], &m->mark[i])) {
            m->mark[kept++] = m->mark[i];
            continue;
        }
        m->mark[kept - 1].count += m->mark[i].count;
        m->mark[kept - 1].bytes += m->mark[i].bytes;
    }
    m->n = kept;
}

static int32_t to_unit(int32_t at, int32_t unit)
{
    return (at + unit / 2) / unit * unit;
}

void marks_thin(struct marks *m)
{
    int32_t unit = 1;

    for (marks_join(m); m->n > PICTURE_MARKS && unit < 32; marks_join(m)) {
        unit *= 2; /* what was rounded once is not to move off its grid */
        for (size_t i = 0; i < m->n; i++) {
            struct mark *mark = &m->mark[i];

            mark->x = mark->x / unit * unit;
            mark->x2 = mark->x2 / unit * unit;
            mark->top = mark->top / unit * unit;
            mark->bottom = to_unit(mark->bottom, unit);
            if (mark->bottom < mark->top + unit)
                mark->bottom = mark->top + unit;
        }
    }
    m->unit = unit;
}
