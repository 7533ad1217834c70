/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows: the heap and the stack of a thread. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "check_malloc.h"

enum {
    MEDIUM = 100 * 1024,
    BLOCKS = 8,
    STACK = 1 << 20,
    BIG_STACK = 64 << 20, /* more than glibc keeps for other threads */
    DEEP = 512 * 1024
};

static struct {
    pthread_t thread;
    sem_t ready, go;
    char *addr;
} worker;

static char *page_above(char *at)
{
    return (char *)(((uintptr_t)at + PAGE_BYTES - 1) & -(uintptr_t)PAGE_BYTES);
}

static void wait_for(sem_t *s)
{
    while (sem_wait(s))
        ;
}

/* Blocks in an arena of its own, given back from the top down. */
static void *heap_user(void *arg)
{
    char *block[BLOCKS];

    (void)arg;
    for (int i = 0; i < BLOCKS; i++) {
        block[i] = malloc(MEDIUM);
        if (block[i])
            memset(block[i], 1, MEDIUM);
    }
    if (block[BLOCKS - 2])
        worker.addr = page_above(block[BLOCKS - 2]);
    sem_post(&worker.ready);
    wait_for(&worker.go);
    for (int i = BLOCKS - 1; i >= 0; i--)
        free(block[i]);
    return NULL;
}

/* Deep in the stack, where nothing is used when the thread ends. */
static __attribute__((noinline)) void use_stack(void)
{
    char buffer[DEEP];

    memset(buffer, 1, sizeof(buffer));
    worker.addr = page_above(buffer);
    __asm__ volatile("" : : "r"(buffer) : "memory");
}

static void *stack_user(void *arg)
{
    (void)arg;
    use_stack();
    sem_post(&worker.ready);
    wait_for(&worker.go);
    return NULL;
}

static bool start(struct scene *s, void *(*run)(void *), size_t stack)
{
    pthread_attr_t attr;

    sem_init(&worker.ready, 0, 0);
    sem_init(&worker.go, 0, 0);
    pthread_attr_init(&attr);
    errno = pthread_attr_setstacksize(&attr, stack);
    if (!errno)
        errno = pthread_create(&worker.thread, &attr, run, NULL);
    if (errno)
        return cannot(s, "pthread_create");
    wait_for(&worker.ready);
    s->addr = worker.addr;
    return done(s, s->addr, "malloc");
}

bool arena_setup(struct scene *s)
{
    return start(s, heap_user, STACK);
}

bool thread_stack_setup(struct scene *s)
{
    return start(s, stack_user, STACK);
}

bool thread_big_stack_setup(struct scene *s)
{
    return start(s, stack_user, BIG_STACK);
}

/* The thread ends. */
bool thread_release(struct scene *s)
{
    (void)s;
    sem_post(&worker.go);
    return done(s, !pthread_join(worker.thread, NULL), "pthread_join");
}
