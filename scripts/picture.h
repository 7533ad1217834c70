/* SPDX-License-Identifier: BSD-3-Clause */
/* How the picture of a process is drawn: its measures, and its parts. */
#ifndef PICTURE_H
#define PICTURE_H

#include <stdio.h>

#include "past.h"
#include "space.h"

enum {
    PICTURE_LEFT = 220, /* where the plot begins: labels are left of it */
    PICTURE_WIDTH = 960,
    PICTURE_RIGHT = 20,
    PICTURE_SPACE = 560, /* height of the address space */
    PICTURE_ZONES = 14,
    PICTURE_MARKS = 10000, /* at most; more are put together */
};

struct picture {
    FILE *out;
    FILE *over; /* what is to be on top of all */
    const struct past *past;
    const struct past_process *process;
    struct space space, time; /* of the latter, top is left */
    double y;                 /* where the next lane begins */
};

/* The colour of a reason. */
const char *picture_colour(unsigned reason);
/* To be called first: which times are shown. */
void picture_time(struct picture *p);
/* Lines of time, their numbers, and what is folded, down to there. */
void picture_axis(struct picture *p, double bottom);
double picture_x(const struct picture *p, uint64_t ns);
/* The time at that place of the plot. */
uint64_t picture_ns(const struct picture *p, double x);
void put_xml(FILE *out, const char *text);
/* A word at the left of what is drawn next. */
void picture_label(struct picture *p, double y, const char *text,
                   const char *more);

/* Histogram of bytes by reason; records that wait; watched bytes; the events
 * of the program's own and overflows: each a lane, if there is any. */
void picture_lanes(struct picture *p);
/* Zones and their names, watches, releases, hits. */
void picture_space(struct picture *p);

#endif
