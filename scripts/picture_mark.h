/* SPDX-License-Identifier: BSD-3-Clause */
/* What is drawn into the address space. Those that fall together are one. */
#ifndef PICTURE_MARK_H
#define PICTURE_MARK_H

#include "picture.h"

/* In pixels, so that equal ones fall together. */
struct mark {
    int32_t x, x2, top, bottom;
    uint32_t what; /* reason, or subscriber */
    uint32_t hit;
    uint64_t count, bytes;
    size_t sample; /* one of them: index of an event or a watch */
};

struct marks {
    struct mark *mark;
    size_t n, room;
    int32_t unit; /* of x and y, in pixels */
};

/* At the height of that range. */
struct mark picture_mark(const struct picture *p, uint64_t start, uint64_t end);
void marks_add(struct marks *marks, struct mark mark);
/* Coarser until there are few enough to be looked at, and sent. */
void marks_thin(struct marks *marks);

/* A release of a part of a file has no address; those of the memory where that
 * is mapped and watched are in what was published. */
bool picture_of_file(const struct past_event *event);
/* Has it a place? */
bool picture_draws(const struct past_event *event);
/* A line of a title; ns since the process began. */
void picture_times(FILE *out, uint64_t from, uint64_t to);
void picture_releases(struct picture *p);

#endif
