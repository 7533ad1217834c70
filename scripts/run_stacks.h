/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stacks of the releases of a run: read from the traces of its processes
 * while they run, unwound, and merged. A ring is written over when it is not
 * read in time; how much that was is counted.
 */
#ifndef RUN_STACKS_H
#define RUN_STACKS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "unwind.h"

/* As struct frame, but what it points to stays. */
struct stack_frame {
    const char *module; /* NULL: not known */
    const char *build_id; /* hexadecimal; "": it has none */
    uint64_t pc, offset;  /* pc: of the first release that came this way */
    const char *symbol;
    uint64_t symbol_offset;
};

struct stack {
    struct stack *next; /* in its bucket */
    uint64_t hash;
    unsigned path; /* enum lapse_path */
    enum unwind_end end;
    uint64_t count, bytes;
    size_t frames;
    struct stack_frame frame[];
};

#define STACK_BUCKETS 1024
struct stacks { /* of one process, and one program of it */
    uint32_t pid;
    uint64_t image; /* as struct process */
    struct stack *bucket[STACK_BUCKETS];
    size_t distinct;
    struct stack **sorted; /* by stacks_sort(): most frequent first */
    uint64_t releases;    /* that are in the buckets */
    uint64_t without;     /* releases whose stack was not copied */
    uint64_t overwritten; /* records, before they were read */
    uint64_t lost;        /* records that found no ring */
    bool none;            /* there is no trace of it at all */
};

/* One more release. */
void stacks_add(struct stacks *s, struct trace *t,
                const struct trace_release *release);
void stacks_sort(struct stacks *s);
void stacks_free(struct stacks *s);
/* Strings that were kept for all of them. */
void stacks_strings_free(void);

void stacks_print(FILE *out, const struct stacks *s, size_t top);
/* "stacks": ..., without a comma behind it. */
void stacks_print_json(FILE *out, const struct stacks *s, size_t top);

struct run_stacks;
/* Reads the traces in the directory. NULL: no memory. */
struct run_stacks *run_stacks_open(const char *dir);
/* What is there now, but not for long. False: there is nothing more now. */
bool run_stacks_read(struct run_stacks *r);
/* All that is there; nothing is read any more. */
void run_stacks_end(struct run_stacks *r);
/* Never NULL. */
const struct stacks *run_stacks_of(const struct run_stacks *r, uint32_t pid,
                                   uint64_t image);
void run_stacks_free(struct run_stacks *r);

#endif
