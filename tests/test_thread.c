/* SPDX-License-Identifier: BSD-3-Clause */
#include "shim/thread.h"

#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit.h"

static sem_t ran;
static sigset_t mask;
static size_t stack;

static void *note(void *unused)
{
    pthread_attr_t attr;

    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    pthread_getattr_np(pthread_self(), &attr);
    pthread_attr_getstacksize(&attr, &stack);
    pthread_attr_destroy(&attr);
    sem_post(&ran);
    return unused;
}

static void start(void)
{
    sem_init(&ran, 0, 0);
    static const struct lapse_thread thread = {.start = note};

    cr_assert_eq(lapse_thread_start(&thread, NULL), 0);
    sem_wait(&ran);
}

static void set_default(size_t size)
{
    pthread_attr_t attr;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, size);
    cr_assert_eq(pthread_setattr_default_np(&attr), 0);
    pthread_attr_destroy(&attr);
}

Test(thread, handles_no_signal_and_leaves_the_callers_mask)
{
    sigset_t own;

    start();
    for (int s = 1; s < 32; s++) /* the next two are libc's */
        if (s != SIGKILL && s != SIGSTOP)
            cr_expect(sigismember(&mask, s), "signal %d", s);
    pthread_sigmask(SIG_BLOCK, NULL, &own);
    cr_expect(!sigismember(&own, SIGUSR1));
}

/* As with ulimit -s 1000000000, which a thread cannot have. */
Test(thread, stack_has_a_bound)
{
    set_default((size_t)1 << 40);
    start();
    cr_expect(stack <= (size_t)9 << 20);
}

/* A program of very many threads, whose own need no more. */
Test(thread, stack_has_room_for_a_callback)
{
    set_default(16384);
    start();
    cr_expect(stack >= (size_t)128 << 10, "%zu", stack);
}

Test(thread, stack_is_that_of_others)
{
    set_default((size_t)1 << 20);
    start();
    cr_expect(stack <= (size_t)1 << 20);
}

static atomic_bool stop;

/* It is no program, which the kernel finds out when it is in the call. */
static void *execute(void *file)
{
    char *const argv[] = {file, NULL};

    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        execv(file, argv);
    return NULL;
}

/* What the kernel refuses meanwhile is asked for again. */
Test(thread, starts_while_another_executes)
{
    char file[] = "/tmp/test_thread.XXXXXX";
    int fd = mkostemp(file, O_CLOEXEC);
    pthread_t other;

    cr_assert(write(fd, "no program", 10) == 10 && !fchmod(fd, 0755) &&
              !close(fd));
    cr_assert_eq(pthread_create(&other, NULL, execute, file), 0);
    for (int i = 0; i < 100; i++)
        start();
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    pthread_join(other, NULL);
    unlink(file);
}
