/* SPDX-License-Identifier: BSD-3-Clause */
#include "space.h"

#include <math.h>
#include <stdlib.h>

static int range_order(const void *left, const void *right)
{
    const struct space_range *a = left, *b = right;

    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

uint64_t space_bytes(struct space_range *range, size_t ranges)
{
    uint64_t sum = 0, end = 0;

    if (ranges)
        qsort(range, ranges, sizeof(*range), range_order);
    for (size_t i = 0; i < ranges; i++) {
        uint64_t start = range[i].start > end ? range[i].start : end;

        if (range[i].end <= start)
            continue;
        sum += range[i].end - start;
        end = range[i].end;
    }
    return sum;
}

/* Those that touch become one. */
static size_t join(struct space_range *range, size_t ranges)
{
    size_t kept = 0;

    if (ranges)
        qsort(range, ranges, sizeof(*range), range_order);
    for (size_t i = 0; i < ranges; i++) {
        if (range[i].end <= range[i].start)
            continue;
        if (kept && range[i].start <= range[kept - 1].end) {
            if (range[i].end > range[kept - 1].end)
                range[kept - 1].end = range[i].end;
        } else {
            range[kept++] = range[i];
        }
    }
    return kept;
}

static int larger_first(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;

    return *a > *b ? -1 : *a < *b;
}

/* The least of the `count` largest gaps, of those that may be folded. */
static uint64_t threshold(const struct space_range *range, size_t ranges,
                          size_t count, uint64_t least)
{
    uint64_t *gap = calloc(ranges, sizeof(*gap));
    uint64_t result = least;

    for (size_t i = 1; gap && i < ranges; i++)
        gap[i - 1] = range[i].start - range[i - 1].end;
    if (gap) {
        qsort(gap, ranges - 1, sizeof(*gap), larger_first);
        if (count < ranges && (!count || gap[count - 1] > least))
            result = count ? gap[count - 1] : UINT64_MAX;
    } else {
        result = UINT64_MAX;
    }
    free(gap);
    return result;
}

void space_fold(struct space *space, struct space_range *range, size_t ranges,
                size_t most, uint64_t least)
{
    uint64_t fold;

    space->zones = 0;
    if (most > SPACE_ZONES)
        most = SPACE_ZONES;
    ranges = join(range, ranges);
    if (!ranges || !most)
        return;
    fold = threshold(range, ranges, most - 1, least);
    for (size_t i = 0; i < ranges; i++) {
        struct space_zone *last = &space->zone[space->zones - !!space->zones];

        /* Of gaps that are equal some may have to stay. */
        if (!space->zones ||
            (range[i].start - last->end >= fold && space->zones < most))
            space->zone[space->zones++] = (struct space_zone){
                .start = range[i].start, .end = range[i].end};
        else
            last->end = range[i].end;
    }
}

static double weight(const struct space_zone *zone, uint64_t most)
{
    double pages = (double)(zone->end - zone->start) / 4096;
    double busy = sqrt((double)zone->uses / (double)(most ? most : 1));

    return 1.5 + log2(1 + pages) * (0.35 + busy);
}

void space_place(struct space *space, double height, double apart)
{
    double sum = 0, at = 0;
    uint64_t most = 0;

    for (size_t i = 0; i < space->zones; i++)
        if (space->zone[i].uses > most)
            most = space->zone[i].uses;
    for (size_t i = 0; i < space->zones; i++)
        sum += weight(&space->zone[i], most);
    height -= apart * (double)(space->zones - !!space->zones);
    for (size_t i = space->zones; i--;) {
        struct space_zone *zone = &space->zone[i];

        zone->top = at;
        zone->bottom = at + height * weight(zone, most) / sum;
        at = zone->bottom + apart;
    }
}

size_t space_zone_at(const struct space *space, uint64_t address)
{
    size_t at = 0;

    while (at + 1 < space->zones && space->zone[at + 1].start <= address)
        at++;
    return at;
}

double space_y(const struct space *space, uint64_t address)
{
    const struct space_zone *zone = &space->zone[space_zone_at(space, address)];

    if (!space->zones || address >= zone->end)
        return space->zones ? zone->top : 0;
    if (address <= zone->start)
        return zone->bottom;
    return zone->bottom - (zone->bottom - zone->top) *
                              (double)(address - zone->start) /
                              (double)(zone->end - zone->start);
}
