/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The counters of a process, laid out so that another process can read them.
 *
 * With LAPSE_REPORT=DIR they live in a shared file DIR/PID.N, which outlives
 * the process however it ends (exit, _exit, exec, SIGKILL); `lapse run` reads
 * the files afterwards. Without it they live in ordinary memory.
 * Everything is written by the process, nothing is read back from the file.
 */
#ifndef LAPSE_REPORT_H
#define LAPSE_REPORT_H

#include <stdint.h>

#include "lapse.h"
#include "observe.h"

#define REPORT_MAGIC 0x32657370616cull /* "lapse2" */
#define REPORT_TALLIES 1024            /* = IN_FLIGHT_SLOTS */
#define REPORT_CALLERS 512             /* power of two */
#define REPORT_TEXT 32768

/* Of one path: a cache line, and as few to add to as can be. */
struct report_path {
    uint64_t passes; /* calls that released nothing */
    uint64_t releases;
    uint64_t bytes;
    uint64_t inside[3]; /* by enum inside, from INSIDE_ALLOCATOR on */
} __attribute__((aligned(64)));

static inline void report_path_add(struct lapse_path_stats *to,
                                   const struct report_path *from)
{
    uint64_t releases = __atomic_load_n(&from->releases, __ATOMIC_RELAXED);

    to->calls +=
        releases + __atomic_load_n(&from->passes, __ATOMIC_RELAXED);
    to->releases += releases;
    to->bytes += __atomic_load_n(&from->bytes, __ATOMIC_RELAXED);
    to->inside_allocator +=
        __atomic_load_n(&from->inside[0], __ATOMIC_RELAXED);
    to->inside_loader += __atomic_load_n(&from->inside[1], __ATOMIC_RELAXED);
    to->inside_libc += __atomic_load_n(&from->inside[2], __ATOMIC_RELAXED);
}

/* Counters owned by one in-flight slot: whoever holds the slot writes. */
struct report_tally {
    struct report_path path[LAPSE_PATH_COUNT];
    uint64_t published;
    uint64_t filtered;
} __attribute__((aligned(64)));

/* Releases by the instruction that called the releasing function. */
struct report_caller {
    uint64_t pc;   /* return address; 0 = free entry, claimed by CAS */
    uint64_t path; /* enum lapse_path */
    uint64_t count;
    uint64_t bytes;
    /* by a module that was there before and was unloaded */
    uint64_t gone_count;
    uint64_t gone_bytes;
};

struct report {
    uint64_t magic;
    uint32_t pid;
    uint32_t ppid;
    char name[32];          /* program name, as in /proc/PID/comm */
    uint64_t delivered;     /* by all consumers */
    uint64_t overflowed;
    uint64_t pool_high;
    uint64_t in_flight_high;
    uint64_t tallies_used;  /* tallies beyond are all zero */
    uint64_t callers_lost;  /* releases whose caller found no entry */
    uint64_t warnings_len;  /* bytes used of warnings[] */
    uint64_t modules_len;   /* bytes used of modules[] */
    char warnings[4096];    /* coverage warnings, a line each */
    char modules[REPORT_TEXT]; /* "start end path\n" in hex; start is the load
                                  bias, end the end of the last segment */
    struct report_caller callers[REPORT_CALLERS];
    struct report_tally tallies[REPORT_TALLIES];
};

/* The place the counters are now; never NULL. */
extern struct report *lapse_report __attribute__((visibility("hidden")));
/* Move the counters into a file in dir. From the constructor only. */
void report_start(const char *dir);
/* The constructor is done: what comes now is the program's. */
void report_started(void);
/* Note the modules that are loaded now. Takes the loader's lock. */
void report_modules(void);
/* Copy high-water marks in; at the end, and whenever cheap. */
void report_refresh(void);
/* The forked child, alone: a file of its own, all counters 0. */
void report_fork_child(void);
/* Add a line to the warnings. From the constructor or the destructor only. */
void report_warn(const char *line);
/* A release came from the code before pc. Lock-free. */
void report_caller(uint64_t pc, unsigned path, uint64_t bytes);
/* The loader unmaps that: what comes there later is other code. Lock-free. */
void report_unloaded(uint64_t start, uint64_t end);

#endif
