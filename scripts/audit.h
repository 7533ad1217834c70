/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of `lapse audit`, each a file:
 *   calls    which system calls release memory, and when
 *   filter   has the kernel stop a command at just these (seccomp)
 *   trace    the stops of all its threads, signals among them (ptrace)
 *   task     the threads that are traced, and whose they are
 *   process  what is known of a process, and whether it was told of a call
 *   maps     what is mapped in a process
 *   finding  the calls nobody was told of
 *   report   shows them
 */
#ifndef AUDIT_H
#define AUDIT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "supervise.h"

/* When a call stops, as far as the kernel can tell from one argument. */
enum audit_when {
    WHEN_ALWAYS,
    WHEN_MASKED,  /* (argument & mask) == value */
    WHEN_ANY,     /* (argument & mask) != 0 */
    WHEN_NONZERO, /* argument != 0, all of its bits */
    WHEN_ADVICE   /* argument is an advice that releases */
};

enum { AUDIT_NONE = -1 }; /* there is no such call on that architecture */

struct audit_call {
    const char *name;
    int nr, nr32; /* of 64-bit programs, of 32-bit ones */
    enum audit_when when;
    unsigned argument;
    uint32_t mask, value;
    /* May it release memory of its process, called so? NULL: always. */
    bool (*releases)(pid_t pid, const uint64_t *arguments);
};

extern const struct audit_call audit_calls[];
extern const size_t audit_calls_count;
extern const uint32_t audit_advice[];
extern const size_t audit_advice_count;
/* Its rings carry releases past every system call. */
bool audit_call_is_uring(const struct audit_call *call);
/*
 * Is it, if the shim makes it, the sign that the shim is at work? (Made last by
 * its constructor, in hooks/start.c; and by its hooks.)
 */
bool audit_call_is_sign(const struct audit_call *call,
                        const uint64_t *arguments);
/* The memory it takes away by address: false when it does not. */
bool audit_call_unmaps(const struct audit_call *call,
                       const uint64_t *arguments, uint64_t *start,
                       uint64_t *end);

/* From here on the caller stops at those calls. 0 or errno. */
int audit_filter_install(void);

struct audit_mapping {
    uint64_t start, end, offset, inode;
    bool executable;
    const char *path; /* "" when it has none */
};
/* Visits the mappings of a process until `visit` says true: then true. */
bool audit_maps_find(pid_t pid,
                     bool (*visit)(const struct audit_mapping *, void *),
                     void *argument);

struct audit_finding {
    struct audit_finding *next;
    const struct audit_call *call;
    char *program; /* path */
    char *module;  /* path, NULL: executable memory of no file */
    uint64_t at;   /* of the syscall instruction: offset in the file, or
                      address where there is no file */
    uint64_t count;
    pid_t pid; /* of the first */
};

/* A program without the shim inside. */
struct audit_blind {
    struct audit_blind *next;
    char *program;
    uint64_t count, processes;
};

struct audit {
    struct onlooker onlooker; /* first: that is how trace gets at us */
    char library[PATH_MAX];
    uint64_t library_inode;
    pid_t command;
    bool stopped; /* the command, as far as supervise() was told */
    int status;   /* of the command, once it ended */
    bool uring;   /* somebody uses io_uring */
    uint64_t seen, unseen, processes;
    uint64_t lost; /* calls that could not be looked at */
    struct audit_finding *findings; /* a list that tables only index */
    size_t findings_count;
    struct audit_blind *blinds;
    struct audit_tasks *tasks;
};

void audit_find(struct audit *audit, const struct audit_finding *like);
void audit_find_blind(struct audit *audit, const char *program,
                      uint64_t count);
void audit_findings_sort(struct audit *audit);
void audit_findings_free(struct audit *audit);

struct audit_task;
bool audit_tasks_make(struct audit *audit);
void audit_tasks_free(struct audit *audit);
struct audit_task *audit_task_get(struct audit *audit, pid_t tid);
pid_t audit_task_id(const struct audit_task *task);
void audit_task_drop(struct audit *audit, pid_t tid);
/* It started another one: a thread, or a process that is a copy. */
void audit_task_forked(struct audit *audit, struct audit_task *task,
                       pid_t child);
void audit_task_executed(struct audit *audit, struct audit_task *task);
/* It is about to make that call, and will go on at that address. */
void audit_task_called(struct audit *audit, struct audit_task *task,
                       const struct audit_call *call,
                       const uint64_t *arguments, uint64_t address);

/* Fills in the onlooker, to be given to supervise(). */
void audit_trace_make(struct audit *audit);
/* The command has ended: wait for the processes that it left behind. */
void audit_trace_rest(struct audit *audit);

void audit_print(struct audit *audit, FILE *out, size_t top, char **command);
void audit_print_json(struct audit *audit, FILE *out, size_t top,
                      char **command);

#endif
