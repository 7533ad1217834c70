/* SPDX-License-Identifier: BSD-3-Clause */
/* The mappings of this process, as /proc tells them. */
#ifndef LAPSE_MAPS_H
#define LAPSE_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct maps_line {
    uint64_t start, end;
    uint64_t offset; /* in the file */
    uint64_t inode;
    uint32_t device; /* 0: none, else some number of it */
    bool readable;
};

/* Is it a file's, or shared memory? The first System V segment of a boot has
 * inode 0, but a device. */
static inline bool maps_is_file(const struct maps_line *line)
{
    return line->device || line->inode;
}

/* What of [*start, *end) lies in it; false: nothing. */
static inline bool maps_clip(const struct maps_line *line, uintptr_t *start,
                             uintptr_t *end)
{
    if (*start < line->start)
        *start = line->start;
    if (*end > line->end)
        *end = line->end;
    return *start < *end;
}

/*
 * The lines are gone through by
 *     for (maps_open(&m, text, sizeof(text)); maps_next(&m);) ... m.line ...
 *     whole = maps_close(&m);
 * A mapping that comes, goes or changes meanwhile may be missed, or seen in
 * parts. What is done with a line is done with nothing of this on the stack
 * but the struct and the text: G4.
 */
struct maps {
    struct maps_line line;
    char *text;
    uint16_t room;
    uint16_t at, size; /* of what is in text */
    uint8_t field;
    bool at_end;
    uint32_t lines; /* so far */
    int fd;
};

#define MAPS_TEXT 64 /* on somebody's stack; a larger one takes fewer calls */

void maps_open(struct maps *m, char *text, size_t room);
/* False: there is none any more, or it cannot be read. */
bool maps_next(struct maps *m);
/* False: they were not read, or not to the end. */
bool maps_close(struct maps *m);

#endif
