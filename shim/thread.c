/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a process ends by itself. A thread that ends, main by pthread_exit()
 * too, takes itself from __nptl_nthreads, glibc's count of threads; who takes
 * the last one calls exit(0). So a thread of ours must not be in that count
 * (G5): else nobody calls exit(), and what is left of the process takes no
 * signal. The variable is part of what glibc shows to libthread_db. Nothing
 * but this and a "is stdio to lock from now on", which is never taken back,
 * hangs on its value (glibc 2.34 to 2.42). In what follows N is the number of
 * threads that are counted rightly.
 *
 *  T1 Who makes a thread takes it out when it is made. He is in N until then,
 *     so the count never gets to 0 by us: nobody is cheated of its exit(), and
 *     no exit() comes early. He adds nothing before, since pthread_create()
 *     has stdio lock from now on if it finds the count at 1.
 *  T2 A thread of ours puts itself back in before it ends, for glibc to take
 *     it out. If the last of N ends between the two, ours is the last one, and
 *     calls exit(). So it is the same, but for the thread.
 *  T3 0: exit() is under way, by the last of N. It must not be called once
 *     more when a thread of ours, made by a handler or told to end by one,
 *     ends in its turn: then one is added that nobody takes away again.
 *  T4 The maker may be one of ours, in a callback, and not in N. So that it is
 *     as in T1, he is counted meanwhile. If all of N end in that time, none of
 *     them was the last, and he may not take himself out. Then one more is
 *     made, for no other purpose than to be it.
 */
#include "thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>

#include "lapse.h"
#include "sys.h"

/* pthread_cleanup_push(); another C library has none: hooks/start.c */
#pragma weak __pthread_register_cancel
#pragma weak __pthread_unregister_cancel

/* More than there can be threads: then it is not what we take it for. */
#define THREADS_MAX (1u << 22)
#define TRIES 16
#define PATIENCE_MS 128
#define STACK_MAX ((size_t)8 << 20)

static _Atomic unsigned *counter;

/* Is the calling thread one that was taken out? */
static __thread bool uncounted __attribute__((tls_model("initial-exec")));

void thread_counter(void *unsigned_int)
{
    _Atomic unsigned *at = unsigned_int;
    unsigned n = at ? atomic_load_explicit(at, memory_order_relaxed) : 0;

    counter = n && n < THREADS_MAX ? at : NULL;
}

void thread_fork_child(void)
{
    uncounted = false;
}

/* T3: and one more, if it is 0. Relaxed, like all here: nothing is handed over
 * but the number. */
static void put_in(void)
{
    unsigned n = atomic_load_explicit(counter, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(counter, &n, n + 1 + !n,
                                                  memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

static void *be_last(void *unused)
{
    return unused;
}

/* Before a thread is made. Returns how many are to be taken out after that,
 * but for the thread: the maker, or none. */
static int put_maker_in(void)
{
    unsigned none = 0;

    if (uncounted) {
        put_in(); /* T4 */
        return 1;
    }
    /* T3 */
    atomic_compare_exchange_strong_explicit(
        counter, &none, 1, memory_order_relaxed, memory_order_relaxed);
    return 0;
}

/* T1, T4 */
static void take_out(void)
{
    unsigned n = atomic_load_explicit(counter, memory_order_relaxed);
    pthread_t last;

    for (int tries = TRIES; tries;) {
        if (n > 1 && atomic_compare_exchange_weak_explicit(
                         counter, &n, n - 1, memory_order_relaxed,
                         memory_order_relaxed))
            return;
        if (n > 1)
            continue;
        tries--;
        if (!pthread_create(&last, NULL, be_last, NULL))
            pthread_detach(last);
        n = atomic_load_explicit(counter, memory_order_relaxed);
    }
}

/* Runs also if a callback ends the thread. */
static void leave(void *unused)
{
    (void)unused;
    if (uncounted)
        put_in(); /* T2 */
}

static void *run(void *arg)
{
    const struct lapse_thread *what = arg;
    void *result;

    uncounted = counter != NULL;
    pthread_cleanup_push(leave, NULL);
    result = what->start(what->arg);
    pthread_cleanup_pop(1);
    return result;
}

/* The default is the limit of the main thread's stack; where that was raised
 * for the main thread's sake, as large a mapping may not be had. */
static void limit_stack(pthread_attr_t *attr)
{
    size_t stack;

    if (!pthread_attr_getstacksize(attr, &stack) && stack > STACK_MAX)
        pthread_attr_setstacksize(attr, STACK_MAX);
}

/* While another thread is in execve(), the kernel says EAGAIN to who makes one
 * (fs->in_exec). Either it executes and we are gone, or it fails soon. Where
 * that is not why, as with RLIMIT_NPROC, only the first call waits so long. By
 * futex(), which who confines himself lets through for us anyhow. */
static int create(pthread_t *thread, const pthread_attr_t *attr, void *what)
{
    static const struct timespec moment = {.tv_nsec = 1000000};
    static _Atomic bool hopeless; /* relaxed, like all here */
    static _Atomic uint32_t nobody;
    int err = pthread_create(thread, attr, run, what);
    bool once = atomic_load_explicit(&hopeless, memory_order_relaxed);

    for (int i = 0; err == EAGAIN && !once && i < PATIENCE_MS; i++) {
        sys(SYS_futex, &nobody, FUTEX_WAIT_PRIVATE, 0, &moment);
        err = pthread_create(thread, attr, run, what);
    }
    atomic_store_explicit(&hopeless, err == EAGAIN, memory_order_relaxed);
    return err;
}

int lapse_thread_start(const struct lapse_thread *what, pthread_t *out)
{
    pthread_attr_t attr;
    sigset_t all, old;
    pthread_t thread;
    int err, surplus = 0;

    if (!what || !what->start)
        return -EINVAL;
    pthread_attr_init(&attr);
    limit_stack(&attr);
    /* It inherits the mask: no signal of the program is handled there. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (counter)
        surplus = put_maker_in();
    err = create(&thread, &attr, (void *)(uintptr_t)what);
    pthread_attr_destroy(&attr);
    if (!err && counter)
        surplus++;
    while (surplus--)
        take_out();
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err)
        return -err;
    if (out)
        *out = thread;
    else
        pthread_detach(thread);
    return 0;
}
