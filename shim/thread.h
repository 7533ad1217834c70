/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of the library's own. */
#ifndef LAPSE_THREAD_H
#define LAPSE_THREAD_H

/* Starts a detached thread that handles no signal of the program, with a stack
 * as others of the program have, but of 8 MiB at most. 0 or an error number. */
int thread_start(void *(*main)(void *));

#endif
