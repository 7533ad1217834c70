/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a process ends by itself. A thread that ends, main by pthread_exit()
 * too, takes itself from __nptl_nthreads, glibc's count of threads; who takes
 * the last one calls exit(0). So a thread of ours must not be in that count
 * (G5): else nobody calls exit(), and what is left of the process takes no
 * signal. The variable is part of what glibc shows to libthread_db. Nothing
 * but this and a "is stdio to lock from now on", which is never taken back,
 * hangs on its value (glibc 2.34 to 2.42). In what follows N is the number of
 * threads that are counted rightly. tests/model/last_thread.pml is a model.
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
 *     made, for no other purpose than to be it. That one takes him out: both
 *     are in then. He could not: it may have ended before he comes to it, and
 *     on a busy machine, where who is made runs first, it does so each time.
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
#define PATIENCE_MS 128
#define STACK_MIN ((size_t)256 << 10)
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

/* Before a thread is made: is the maker to be taken out after that? */
static bool put_maker_in(void)
{
    unsigned none = 0;

    if (uncounted)
        put_in(); /* T4 */
    else          /* T3 */
        atomic_compare_exchange_strong_explicit(
            counter, &none, 1, memory_order_relaxed, memory_order_relaxed);
    return uncounted;
}

/* T1. False: there is nobody but who is to be taken out. */
static bool take_out(void)
{
    unsigned n = atomic_load_explicit(counter, memory_order_relaxed);

    while (n > 1)
        if (atomic_compare_exchange_weak_explicit(counter, &n, n - 1,
                                                  memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    return false;
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
 * for the main thread's sake, as large a mapping may not be had. Where it was
 * lowered, that is for what the program's own threads do, not for callbacks. */
static void limit_stack(pthread_attr_t *attr)
{
    size_t stack;

    if (pthread_attr_getstacksize(attr, &stack))
        return;
    if (stack < STACK_MIN)
        pthread_attr_setstacksize(attr, STACK_MIN);
    else if (stack > STACK_MAX)
        pthread_attr_setstacksize(attr, STACK_MAX);
}

/* While another thread is in execve(), the kernel says EAGAIN to who makes one
 * (fs->in_exec). Either it executes and we are gone, or it fails soon. Where
 * that is not why, as with RLIMIT_NPROC, only the first call waits so long. By
 * futex(), which who confines himself lets through for us anyhow. */
static int create(pthread_t *thread, const pthread_attr_t *attr,
                  void *(*start)(void *), void *arg)
{
    static const struct timespec moment = {.tv_nsec = 1000000};
    static _Atomic bool hopeless; /* relaxed, like all here */
    static _Atomic uint32_t nobody;
    int err = pthread_create(thread, attr, start, arg);
    bool once = atomic_load_explicit(&hopeless, memory_order_relaxed);

    for (int i = 0; err == EAGAIN && !once && i < PATIENCE_MS; i++) {
        sys(SYS_futex, &nobody, FUTEX_WAIT_PRIVATE, 0, &moment);
        err = pthread_create(thread, attr, start, arg);
    }
    atomic_store_explicit(&hopeless, err == EAGAIN, memory_order_relaxed);
    return err;
}

/* T4 */
static void *be_last(void *unused)
{
    take_out();
    return unused;
}

/* If it cannot be made, the maker stays in, and is the last when he ends. */
static void take_maker_out(const pthread_attr_t *attr)
{
    pthread_t last;

    if (take_out())
        return;
    if (create(&last, attr, be_last, NULL))
        uncounted = false;
    else
        pthread_detach(last);
}

int lapse_thread_start(const struct lapse_thread *what, pthread_t *out)
{
    pthread_attr_t attr;
    sigset_t all, old;
    pthread_t thread;
    bool maker_in = false;
    int err;

    if (!what || !what->start)
        return -EINVAL;
    pthread_attr_init(&attr);
    limit_stack(&attr);
    /* It inherits the mask: no signal of the program is handled there. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (counter)
        maker_in = put_maker_in();
    err = create(&thread, &attr, run, (void *)(uintptr_t)what);
    if (!err && counter)
        take_out();
    if (maker_in)
        take_maker_out(&attr);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err)
        return -err;
    if (out)
        *out = thread;
    else
        pthread_detach(thread);
    return 0;
}
