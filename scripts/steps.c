/* SPDX-License-Identifier: BSD-3-Clause */
#include "steps.h"

#include <stdlib.h>

#include "past.h"

static void add(struct steps *steps, uint64_t ns, uint64_t by)
{
    if (steps->n == steps->room)
        steps->step =
            past_grow(steps->step, &steps->room, sizeof(*steps->step));
    steps->step[steps->n++] = (struct step){ns, by};
}

void steps_add(struct steps *steps, uint64_t from, uint64_t to, uint64_t by)
{
    add(steps, from, by);
    if (to != STEPS_NEVER)
        add(steps, to, -by);
}

static int step_order(const void *left, const void *right)
{
    const struct step *a = left, *b = right;

    if (a->ns != b->ns)
        return a->ns < b->ns ? -1 : 1;
    return (int64_t)a->by < (int64_t)b->by ? -1
                                           : (int64_t)a->by > (int64_t)b->by;
}

void steps_sort(struct steps *steps)
{
    if (steps->n)
        qsort(steps->step, steps->n, sizeof(*steps->step), step_order);
}
