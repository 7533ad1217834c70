/* SPDX-License-Identifier: BSD-3-Clause */
#include "thread.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* The default is the limit of the main thread's stack; where that was raised
 * for the main thread's sake, as large a mapping may not be had. */
#define STACK_MAX ((size_t)8 << 20)

int thread_start(void *(*main)(void *))
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, old;
    size_t stack;
    int err;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (!pthread_attr_getstacksize(&attr, &stack) && stack > STACK_MAX)
        pthread_attr_setstacksize(&attr, STACK_MAX);
    /* It inherits the mask. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    err = pthread_create(&thread, &attr, main, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return err;
}
