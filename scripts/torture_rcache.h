/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scripts/torture rcache: the parent (torture_rcache.c) watches a child, which
 * runs workers (torture_rcache_child.c) on blocks of memory that come and go
 * in every way there is (torture_rcache_blocks.c and those of its header, and
 * counted in torture_rcache_ways.c), while others disturb them
 * (torture_rcache_disturb.c).
 *
 * Counters on the board are relaxed: written by one side, read for their
 * movement, or when the child was waited for.
 */
#ifndef LAPSE_TORTURE_RCACHE_H
#define LAPSE_TORTURE_RCACHE_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "torture_options.h"
#include "torture_rcache_ways.h"

#define RCACHE_THREADS 32
#define RCACHE_DISTURBERS 3

struct rcache_board {
    _Atomic int running, stop;
    _Atomic uint64_t rounds[RCACHE_THREADS + RCACHE_DISTURBERS];
    _Atomic uint64_t wrong;
    double first_wrong;   /* seconds after the start */
    char what[200];       /* of the first wrong byte */
    char error[200];      /* something that must not be */
    struct rcache_ways ways;
    char counts[400];     /* for people */
};

int torture_rcache_main(int argc, char **argv);
/* 0: it can run here; else it said why not, and this is the exit status. */
int torture_rcache_probe(const struct torture_options *o);
/* One phase: the exit status. */
int torture_rcache_phase(struct torture_options o, bool blind);
/* The signal that asked for an end, or 0. */
extern volatile sig_atomic_t rcache_interrupted;
/* For a re-executed child; else it returns. */
void torture_rcache_enter_child(int argc, char **argv);

/* Of the child: */
extern struct rcache_board *rcache_board;
extern struct torture_options rcache_options;
int torture_rcache_child(void);

/* Of every three seeds, one lets the cache merge registrations. */
static inline size_t rcache_merge_bytes(const struct torture_options *o)
{
    return o->seed % 3 ? 0 : (size_t)1 << 20;
}

void rcache_trouble(const char *what, int err); /* err: -errno or 0 */

/* A block of memory. */
struct block {
    char *p;
    size_t len;
    unsigned kind;    /* how it was made */
    void *handle;     /* what its kind wants to know later */
    int fd;           /* of a file; -1 */
    bool deep;        /* of a library opened RTLD_DEEPBIND */
};

uint64_t rcache_random(uint64_t *state);
/* In every thread's absence. */
void blocks_start(const char *library);
void blocks_finish(void);
/* False: this kind is not to be had now. */
bool block_make(struct block *b, uint64_t *random);
const char *block_kind_name(const struct block *b);
/* Release it, all or in part, in one of the ways of its kind. What is left, or
 * new, stays in *b; b->p NULL: nothing. */
const char *block_release(struct block *b, uint64_t *random);

/* torture_rcache_disturb.c; until board->stop */
void *disturb_trim(void *rounds);
void *disturb_fork(void *rounds);
void *disturb_signal(void *rounds);
void disturb_know(unsigned i); /* the calling thread is to get signals */
void disturb_forget(unsigned i);

#endif
