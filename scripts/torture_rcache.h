/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scripts/torture rcache: the parent (torture_rcache.c) watches a child, which
 * runs workers (torture_rcache_child.c) on blocks of memory that come and go
 * in every way there is (torture_rcache_blocks.c), while others disturb them
 * (torture_rcache_disturb.c).
 *
 * Counters on the board are relaxed: written by one side, read for their
 * movement, or when the child was waited for.
 */
#ifndef LAPSE_TORTURE_RCACHE_H
#define LAPSE_TORTURE_RCACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RCACHE_THREADS 32
#define RCACHE_DISTURBERS 3
#define RCACHE_LIBRARY_MEMORY (256u << 10)

struct rcache_options {
    unsigned seconds, threads;
    uint64_t seed;
    bool jemalloc, blind; /* blind: the cache does not look for releases */
};

struct rcache_board {
    _Atomic int running, stop;
    _Atomic uint64_t rounds[RCACHE_THREADS + RCACHE_DISTURBERS];
    _Atomic uint64_t wrong;
    double first_wrong;   /* seconds after the start */
    char what[200];       /* of the first wrong byte */
    char error[200];      /* something that must not be */
    char counts[400];     /* for people */
};

int torture_rcache_main(int argc, char **argv);
/* For a re-executed child; else it returns. */
void torture_rcache_enter_child(int argc, char **argv);

/* Of the child: */
extern struct rcache_board *rcache_board;
extern struct rcache_options rcache_options;
int torture_rcache_child(void);
void rcache_trouble(const char *what, int err); /* err: -errno or 0 */

/* A block of memory. */
struct block {
    char *p;
    size_t len;
    unsigned kind;    /* how it was made */
    void *handle;     /* of a library */
    int fd;           /* of a file; -1 */
};
#define BLOCK_KINDS 10
extern const char *const block_kind_name[BLOCK_KINDS];

uint64_t rcache_random(uint64_t *state);
/* False: this kind is not to be had now. */
bool block_make(struct block *b, uint64_t *random);
/* Release it, all or in part, in one of the ways of its kind. What is left, or
 * new, stays in *b; b->p NULL: nothing. */
const char *block_release(struct block *b, uint64_t *random);
void blocks_start(const char *library);

/* torture_rcache_disturb.c; until board->stop */
void *disturb_trim(void *rounds);
void *disturb_fork(void *rounds);
void *disturb_signal(void *rounds);
void disturb_know(unsigned i); /* the calling thread is to get signals */
void disturb_forget(unsigned i);

#endif
