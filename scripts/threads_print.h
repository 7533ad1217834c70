/* SPDX-License-Identifier: BSD-3-Clause */
/* `lapse stacks`: how it is asked for, and how it is told. */
#ifndef THREADS_PRINT_H
#define THREADS_PRINT_H

#include "remote.h"

enum { STACKS_THREADS = 64 };

struct stacks_request {
    bool json;
    size_t top;   /* frames of a thread */
    pid_t thread[STACKS_THREADS]; /* these, and those they wait for */
    size_t threads;               /* 0: all */
};

/* Is this thread to be shown? shown: one byte for each of r->thread. */
void stacks_choose(struct remote *r, const struct stacks_request *request,
                   bool *shown);
void threads_print(struct remote *r, const struct stacks_request *request,
                  const bool *shown, FILE *out);
void threads_print_json(struct remote *r, const struct stacks_request *request,
                       const bool *shown, FILE *out);

/*
 * From thread i along those that hold what is waited for. True if that comes
 * back to i, and i is the first of the circle, so that each is found once;
 * *perhaps: some of it was guessed.
 */
bool stacks_circle(struct remote *r, size_t i, bool *perhaps);
struct remote_thread *stacks_next(struct remote *r,
                                  const struct remote_thread *t);

#endif
