/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a command as if we were not there: signals go through in both
 * directions, a stop of the command is a stop of ours, and it ends as it ends.
 */
#ifndef SUPERVISE_H
#define SUPERVISE_H

#include <stdbool.h>
#include <sys/types.h>

/* From here to supervise_release() no signal ends us half way. */
void supervise_hold(void);

/* Somebody who takes part: a tracer, a reader. All that is NULL is left out. */
struct onlooker {
    /* In the child, before exec: 0 or errno. */
    int (*enter)(struct onlooker *);
    /* In the parent, while the child waits for the end of this: 0 or errno. */
    int (*begin)(struct onlooker *, pid_t command);
    /*
     * Instead of waitpid(command): its next status, a stop, its going on
     * (0xffff) or its end; false when there is none now.
     */
    bool (*next)(struct onlooker *, int *status);
    /* While nothing happens; returns after how many ms again. */
    int (*idle)(struct onlooker *);
};

/*
 * Runs the command, found in PATH, and waits for its end. Returns 0 and its
 * wait status; the errno of exec when that failed, -errno when fork or the
 * onlooker, if there is one, did.
 */
int supervise(char **argv, char **environment, struct onlooker *onlooker,
              int *status);

/* The next signal that we hold, as by sigtimedwait(); NULL: no limit. */
struct timespec;
int supervise_signal(const struct timespec *limit);

/* What was for the command is forgotten; signals are ours again. */
void supervise_release(void);

/* Ends us by that signal, without a second core dump. */
_Noreturn void supervise_die(int signal);

#endif
