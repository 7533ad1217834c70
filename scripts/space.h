/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Address space as a scale: the parts that are used, with the gaps between
 * them folded away. One that is used for a page is as easy to see as one of a
 * gigabyte: the height of a zone grows with the logarithm of its bytes.
 */
#ifndef SPACE_H
#define SPACE_H

#include <stddef.h>
#include <stdint.h>

struct space_range {
    uint64_t start, end;
};

struct space_zone {
    uint64_t start, end;
    uint64_t uses;      /* the busier it is, the higher it is drawn */
    double top, bottom; /* high addresses are at the top, which is less */
};

enum { SPACE_ZONES = 24 };

struct space {
    struct space_zone zone[SPACE_ZONES]; /* by address */
    size_t zones;
};

/*
 * At most `most` zones that hold all of the ranges (which are put in order):
 * the largest gaps are folded, and none below `least` bytes.
 */
void space_fold(struct space *space, struct space_range *range, size_t ranges,
                size_t most, uint64_t least);
/* How much of it they are, together; they are put in order. */
uint64_t space_bytes(struct space_range *range, size_t ranges);
/* From 0 to height, with `apart` between zones. */
void space_place(struct space *space, double height, double apart);
/* Where an address is drawn; of one in a gap, the top of the zone below it.
 * Rises from 0 as addresses fall. */
double space_y(const struct space *space, uint64_t address);
/* The zone of that address; the last one below it if it is in a gap. */
size_t space_zone_at(const struct space *space, uint64_t address);

#endif
