/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that the program does not know of: lapse_thread_start(), for our own
 * and those of caches. Signals are the program's threads' to take, and the
 * process is the program's threads' to end.
 */
#ifndef LAPSE_THREAD_H
#define LAPSE_THREAD_H

/* Where libc counts the threads that the process waits for; NULL: unknown.
 * From the constructor. */
void thread_counter(void *unsigned_int);

/* The forked child, alone: libc counts the thread that goes on in it. */
void thread_fork_child(void);

#endif
