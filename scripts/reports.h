/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The report files that the processes of a run left in a directory, read with
 * distrust (a process may write into its own still, or have scribbled on it)
 * and summed up; and how to show them.
 */
#ifndef REPORTS_H
#define REPORTS_H

#include <stdio.h>

#include "report.h"

struct caller {
    struct report_caller seen;
    char *module;    /* path of the file, NULL when unknown */
    uint64_t offset; /* address as in the file; of use with a module only */
    bool gone;       /* of a module that was unloaded: it is not known which */
};

struct process {
    uint64_t started; /* of its report file: the order of processes, in ns */
    uint64_t image;   /* N of PID.N: one process may exec several programs */
    uint32_t pid, ppid;
    char name[sizeof(((struct report *)0)->name) + 1];
    struct lapse_path_stats path[LAPSE_PATH_COUNT];
    struct lapse_path_stats sum; /* of all paths */
    uint64_t delivered, overflowed, pool_high, in_flight_high, callers_lost;
    char *warnings;        /* lines */
    char *modules;         /* lines "start end path" */
    struct caller *caller; /* most frequent first */
    size_t callers;
    const struct stacks *stacks; /* run_stacks.h; NULL: none were kept */
};

struct reports {
    struct process *process; /* in the order they began */
    size_t count;
    size_t unreadable;    /* files that are no report of this version */
    struct process total; /* no pid, no name, no callers */
};

/* Reads DIR. What cannot be read is counted, not fatal. */
void reports_read(struct reports *reports, const char *dir);
void reports_free(struct reports *reports);

const char *reports_path_name(unsigned path);
/* "?" when unknown. */
const char *reports_reason_name(unsigned reason);

/* One screen for people; `top` callers of each process. */
void reports_print(const struct reports *reports, FILE *out, size_t top);

/* One JSON document. `status` is that of wait(). */
void reports_print_json(const struct reports *reports, FILE *out, size_t top,
                        char **command, int status);

#endif
