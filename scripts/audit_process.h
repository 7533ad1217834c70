/* SPDX-License-Identifier: BSD-3-Clause */
/* What audit_task.c and audit_process.c both know of a process. */
#ifndef AUDIT_PROCESS_H
#define AUDIT_PROCESS_H

#include "audit.h"

struct text; /* an executable mapping */

struct process {
    pid_t pid;
    unsigned tasks;
    bool announced; /* by its parent */
    /* INHERITS: its parent has not told us yet that it forked. */
    enum { INHERITS, FRESH, READY } state;
    bool shim;           /* is mapped */
    unsigned looks;      /* for it */
    uint64_t start, end; /* of its text, from READY on */
    uint64_t early;      /* releases while FRESH */
    char *program;       /* path; NULL: not looked up yet */
    struct text *texts;  /* as far as they are known */
    size_t texts_count;
};

struct audit_task {
    struct audit_task *next;
    pid_t tid;
    bool ended; /* before its parent announced it */
    struct process *process;
};

/* This image of the process is no more. */
void process_image_end(struct audit *audit, struct process *process);
/* The path of its program. */
const char *process_program(struct process *process);

#endif
