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
    uint64_t device; /* 0: none, else some number of it */
    uint64_t inode;
    uint64_t readable; /* 1, or 0 */
};

/* Is it a file's, or shared memory? The first System V segment of a boot has
 * inode 0, but a device. */
static inline bool maps_is_file(const struct maps_line *line)
{
    return line->device || line->inode;
}

typedef void maps_take(void *arg, const struct maps_line *line);

/* Text is taken in by the piece, cut anywhere. Begins as {0}. */
struct maps_text {
    struct maps_line line;
    unsigned field;
    unsigned lines;
};
void maps_feed(struct maps_text *t, const char *text, size_t size,
               maps_take *take, void *arg);

/*
 * Each mapping; one that comes, goes or changes meanwhile may be missed or
 * seen in parts. Returns false when they cannot be read, or not to the end.
 */
bool maps_each(maps_take *take, void *arg);
/* The same through a buffer that is not on the stack: fewer calls. */
bool maps_each_by(char *buffer, size_t room, maps_take *take, void *arg);

#endif
