/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scripts/torture: the parent (torture_main.c, torture_phase.c) runs every
 * phase in a child (torture_deadlock.c) and watches it through a board of
 * counters in shared memory, since a hung child cannot speak for itself.
 *
 * Counters on the board are relaxed: each is written by one side, read for
 * its movement only, or read after the child has been waited for.
 */
#ifndef LAPSE_TORTURE_H
#define LAPSE_TORTURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "lapse.h"
#include "torture_options.h"

#define TORTURE_THREADS 64 /* of each role */
#define TORTURE_REASONS (LAPSE_REASON_OVERFLOW + 1)

/* A sanitizer brings its own malloc, whose locks are other ones. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TORTURE_OWN_MALLOC 1
#else
#define TORTURE_OWN_MALLOC 0
#endif

enum torture_mode {
    TORTURE_SYNC,     /* the fault: the handler runs inside the release */
    TORTURE_CALLBACK, /* the cure, with the library's thread */
    TORTURE_POLL,     /* the cure, in the cache's own lookup */
    TORTURE_MODES
};

/* Where a thread is; what a handler must never meet on its own thread. */
enum torture_place {
    PLACE_OUTSIDE,
    PLACE_ALLOCATOR, /* in malloc, free and the like */
    PLACE_RELEASE    /* in munmap, madvise and the like, called by us */
};

struct torture_thread {
    _Atomic uint64_t rounds;
    _Atomic uint64_t mallocs; /* holders: with the cache lock held */
    _Atomic uint64_t releases; /* releasers: rounds that free or unmap */
    _Atomic int tid;
    _Atomic int place;   /* enum torture_place */
    _Atomic int waiting; /* in the handler, wants the cache lock */
    bool holder;
} __attribute__((aligned(64)));

struct torture_board {
    _Atomic int running; /* child: all threads are under way */
    _Atomic int stop;    /* parent: come to an end */
    _Atomic int finished;
    _Atomic int owner; /* thread that holds the cache lock, 0 when none */

    _Atomic uint64_t told[TORTURE_REASONS];
    _Atomic uint64_t told_open;
    _Atomic uint64_t told_closed;
    _Atomic uint64_t in_allocator; /* handler on a thread in malloc or free */
    _Atomic uint64_t in_release;   /* or in another releasing call */
    _Atomic uint64_t on_worker;    /* or on a test thread not in lapse_sync */
    _Atomic uint64_t nested;       /* or inside itself */
    _Atomic uint64_t syncs;        /* lapse_sync() by releasers */
    _Atomic uint64_t watches;      /* lapse_watch() under the cache lock */
    _Atomic uint64_t refused;      /* calls that failed and must not */
    _Atomic uint64_t witnesses;    /* pages whose release we can identify */
    uint64_t lost;                 /* those nobody told of, in the end */
    bool never_quiet;              /* poll: still pending after the end */
    char error[160];               /* first refused call, or setup trouble */
    struct lapse_stats stats;
    unsigned threads; /* entries used below */
    struct torture_thread thread[2 * TORTURE_THREADS];
};

/* torture_deadlock.c: the child's whole life; returns its exit status. */
int deadlock_child(const struct torture_options *options,
                   enum torture_mode mode, struct torture_board *board);

/* torture_phase.c: one phase, from fork to verdict; true when it passed. */
bool phase_run(const struct torture_options *options, enum torture_mode mode);
/* For main() of a re-executed child: never returns unless this is none. */
void phase_enter_child(int argc, char **argv);
extern const char *const phase_name[TORTURE_MODES];

/* A thread worth a backtrace, and what it is known to do. */
struct stack_request {
    pid_t tid;
    char title[120];
};
/* torture_stacks.c: print backtraces of threads of a process we started. */
void stacks_print(pid_t pid, const struct stack_request *requests, size_t n);

static inline uint64_t torture_get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static inline int torture_int(const _Atomic int *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static inline void torture_add(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

#endif
