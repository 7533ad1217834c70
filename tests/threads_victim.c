/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process whose threads stand in known places, for tests/stacks.sh. Prints
 * a line "NAME TID" for each, then "ready", and at the end of its input how
 * many signals it got.
 */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lapse.h"

#define NOINLINE __attribute__((noinline, noclone))

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static int pipe_ends[2];
static pthread_t joined;
static lapse_handle subscription;
static volatile unsigned spins;
static _Atomic unsigned signals;

static void count(int signal)
{
    (void)signal;
    atomic_fetch_add(&signals, 1);
}

static void name(const char *what)
{
    printf("%s %d\n", what, gettid());
    fflush(stdout);
}

/* The call is the last thing in who calls it: what it would return to is
 * another function. */
__attribute__((noinline, noreturn)) static void victim_for_ever(void)
{
    for (;;)
        pause();
}

NOINLINE static void victim_holds(void)
{
    pthread_mutex_lock(&mutex);
    pthread_rwlock_wrlock(&rwlock);
    name("holds");
    victim_for_ever();
}

NOINLINE static int victim_deep(int depth)
{
    volatile int here = depth;

    if (depth)
        return victim_deep(depth - 1) + here;
    name("mutex");
    pthread_mutex_lock(&mutex);
    return here;
}

static void victim_join(void)
{
    name("join");
    pthread_join(joined, NULL);
}

static void victim_condition(void)
{
    static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;

    name("condition");
    pthread_mutex_lock(&own);
    pthread_cond_wait(&condition, &own);
}

static void victim_semaphore(void)
{
    name("semaphore");
    sem_wait(&semaphore);
}

static void victim_rwlock(void)
{
    name("rwlock");
    pthread_rwlock_rdlock(&rwlock);
}

static void victim_read(void)
{
    char byte;

    name("read");
    if (read(pipe_ends[0], &byte, 1))
        return;
}

static void victim_spin(void)
{
    name("spin");
    for (;;)
        spins++;
}

static void victim_sync(void)
{
    name("sync");
    lapse_sync(subscription);
}

static void victim_callback(const struct lapse_event *e, void *arg)
{
    (void)e;
    (void)arg;
    name("callback");
    pthread_mutex_lock(&mutex);
}

static void victim_mutex(void)
{
    victim_deep(60);
}

static void *start(void *function)
{
    ((void (*)(void))function)();
    return NULL;
}

static pthread_t begin(void (*function)(void))
{
    pthread_t thread;

    pthread_create(&thread, NULL, start, (void *)function);
    usleep(20000);
    return thread;
}

int main(void)
{
    struct lapse_subscription how = {.size = sizeof(how),
                                     .delivery = LAPSE_CALLBACK,
                                     .callback = victim_callback};
    lapse_handle other;
    void *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction act = {.sa_handler = count, .sa_flags = SA_RESTART};
    char byte;

    sigaction(SIGRTMIN, &act, NULL);
    if (pipe(pipe_ends) || lapse_subscribe(&how, &other) ||
        lapse_subscribe(&how, &subscription) ||
        lapse_watch(subscription, p, 8192))
        return 1;
    begin(victim_holds);
    joined = begin(victim_mutex);
    begin(victim_join);
    begin(victim_condition);
    begin(victim_semaphore);
    begin(victim_rwlock);
    begin(victim_read);
    begin(victim_spin);
    munmap(p, 8192);
    usleep(100000);
    begin(victim_sync);
    name("main");
    puts("ready");
    fflush(stdout);
    if (read(0, &byte, 1) < 0)
        return 1;
    printf("signals %u\n", atomic_load(&signals));
    return 0;
}
