/* SPDX-License-Identifier: BSD-3-Clause */
/* Which memory of this process a part of a file is. */
#ifndef LAPSE_FILE_RANGE_H
#define LAPSE_FILE_RANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/release.h"

enum file_kind {
    FILE_MISSING, /* no such file: the call will fail, or make one */
    FILE_OTHER,   /* a FIFO, a terminal: nothing of it is mapped */
    FILE_MAPPABLE,
    FILE_UNKNOWN /* the kernel does not let us look */
};

struct file_id {
    uint64_t device, inode;
    uint32_t unit;  /* bytes that the file system releases at once */
    uint8_t kind;   /* enum file_kind */
    bool by_inode;  /* a mapping of another inode is not of it: see the .c */
    bool inward;    /* a partial page stays where it is */
};

/* Whatever is mapped of any file. */
#define FILE_ANY ((struct file_id){.kind = FILE_UNKNOWN})

/* path NULL: of the descriptor itself. */
struct file_id file_identify(int fd, const char *path, int flags);

static inline bool file_same(const struct file_id *a, const struct file_id *b)
{
    return a->kind == b->kind && a->device == b->device &&
           a->inode == b->inode;
}

/* Does anybody watch anything, and want to be told of files? Part of F1. */
bool file_wanted(void);

/*
 * Publish all memory in which bytes from..to of the file are mapped now.
 * Pages count that lie between, rounded by the caller. Returns how many bytes
 * that were.
 */
uint64_t file_publish(struct release *r, const struct file_id *file,
                      uint64_t from, uint64_t to);

/* The same for what of files is mapped at [start, end), also elsewhere. */
void file_publish_mapped(struct release *r, uintptr_t start, uintptr_t end);

#endif
