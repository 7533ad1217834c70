/* SPDX-License-Identifier: BSD-3-Clause */
/* The files of modules, for what they say about unwinding. */
#ifndef UNWIND_FILE_H
#define UNWIND_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "shim/trace_file.h"

struct unwind_file {
    struct unwind_file *next;
    char *path;
    const uint8_t *bytes; /* NULL: there is none, or another one */
    size_t size;
    bool mapped; /* by us */
    struct stat st;
    uint8_t build_id_len;
    uint8_t build_id[32];
    uint64_t start, end; /* whole pages; here and below addresses as in it */
    /* .eh_frame_hdr, 0: there is none; pairs of 32-bit numbers in a table. */
    uint64_t header, table, entries;
};

/*
 * The file of that segment, if it is the one that was loaded, at that moment in
 * ns since 1970; NULL: it is not there, has changed, or cannot be read. Each is
 * opened once, and stays until unwind_files_free().
 */
const struct unwind_file *unwind_file_of(const struct trace_segment *segment,
                                         uint64_t loaded);
void unwind_files_free(void);

/* What is at that address of the file, `bytes` long; NULL: not in it, or not
 * the same in memory, as it can be written to there. */
const void *unwind_file_at(const struct unwind_file *file, uint64_t address,
                           size_t bytes);

#endif
