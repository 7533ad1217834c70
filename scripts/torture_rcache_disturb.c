/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes on around the workers: trims, forks, signals. */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "torture_rcache.h"

#define PAGE ((size_t)4096)

static struct {
    pthread_mutex_t lock; /* the thread is there while it is held */
    pthread_t thread;
    bool there;
} known[RCACHE_THREADS];

static bool goes_on(void *rounds, long us)
{
    struct timespec t = {.tv_nsec = us * 1000};

    nanosleep(&t, NULL);
    atomic_fetch_add_explicit((_Atomic uint64_t *)rounds, 1,
                              memory_order_relaxed);
    return !atomic_load_explicit(&rcache_board->stop, memory_order_relaxed);
}

void *disturb_trim(void *rounds)
{
    while (goes_on(rounds, 2000)) {
        void *some[16];

        for (int i = 0; i < 16; i++)
            some[i] = malloc(1000 + (size_t)i * 20000);
        for (int i = 0; i < 16; i++)
            free(some[i]);
        malloc_trim(0);
    }
    return NULL;
}

/* What a child releases is its own; its cache is none of its business. */
static void child(void)
{
    char *p;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* should it hang */
    p = malloc(300000);
    p[0] = 1;
    free(p);
    p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(p, PAGE);
    _exit(0);
}

void *disturb_fork(void *rounds)
{
    while (goes_on(rounds, 50000)) {
        int status;
        pid_t pid = fork();

        if (!pid)
            child();
        if (pid < 0)
            continue;
        if (waitpid(pid, &status, 0) != pid || status)
            rcache_trouble("a forked child failed", 0);
    }
    return NULL;
}

/* Both are async-signal-safe in practice. */
static void handler(int number)
{
    char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)number;
    if (p == MAP_FAILED)
        return;
    p[0] = 1;
    madvise(p, PAGE, MADV_DONTNEED);
    munmap(p, 2 * PAGE);
}

void disturb_know(unsigned i)
{
    pthread_mutex_lock(&known[i].lock);
    known[i].thread = pthread_self();
    known[i].there = true;
    pthread_mutex_unlock(&known[i].lock);
}

void disturb_forget(unsigned i)
{
    pthread_mutex_lock(&known[i].lock);
    known[i].there = false;
    pthread_mutex_unlock(&known[i].lock);
}

void *disturb_signal(void *rounds)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};

    sigaction(SIGUSR1, &action, NULL);
    for (unsigned i = 0; goes_on(rounds, 300);
         i = (i + 1) % rcache_options.threads) {
        pthread_mutex_lock(&known[i].lock);
        if (known[i].there)
            pthread_kill(known[i].thread, SIGUSR1);
        pthread_mutex_unlock(&known[i].lock);
    }
    return NULL;
}
