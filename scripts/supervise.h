/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a command as if we were not there: signals go through in both
 * directions, a stop of the command is a stop of ours, and it ends as it ends.
 */
#ifndef SUPERVISE_H
#define SUPERVISE_H

/* From here to supervise_release() no signal ends us half way. */
void supervise_hold(void);

/*
 * Runs the command, found in PATH, and waits for its end. Returns 0 and its
 * wait status; the errno of exec when that failed, -errno when fork did.
 */
int supervise(char **argv, char **environment, int *status);

/* What was for the command is forgotten; signals are ours again. */
void supervise_release(void);

/* Ends us by that signal, without a second core dump. */
_Noreturn void supervise_die(int signal);

#endif
