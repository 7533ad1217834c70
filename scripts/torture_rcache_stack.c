/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory on the stack of a thread. When the thread has ended, glibc drops the
 * pages of the stack and keeps it for the next thread, or unmaps it when that
 * is more than it may keep (GLIBC_TUNABLES in torture_rcache_phase.c): a large
 * one always.
 */
#include <alloca.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "torture_rcache_blocks.h"

#define STACK_SMALL (BLOCK_MOST + (256u << 10))
#define STACK_LARGE (2 * RCACHE_STACKS_KEPT)

struct stack {
    pthread_t thread;
    sem_t there, end;
    size_t len;
    char *p;
};

static void wait_for(sem_t *s)
{
    while (sem_wait(s) && errno == EINTR)
        ;
}

static void *lend(void *arg)
{
    struct stack *s = arg;
    char *raw = alloca(s->len + PAGE);

    s->p = raw + -(uintptr_t)raw % PAGE;
    sem_post(&s->there);
    wait_for(&s->end);
    return NULL;
}

char *make_stack(struct block *b, uint64_t r)
{
    struct stack *s = malloc(sizeof(*s));
    pthread_attr_t attr;
    int err;

    if (!s)
        return NULL;
    s->len = b->len;
    sem_init(&s->there, 0, 0);
    sem_init(&s->end, 0, 0);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, r % 4 ? STACK_SMALL : STACK_LARGE);
    err = pthread_create(&s->thread, &attr, lend, s);
    pthread_attr_destroy(&attr);
    if (err) {
        free(s);
        return NULL;
    }
    wait_for(&s->there);
    b->handle = s;
    return s->p;
}

/* What became of it is only for the count: somebody else may be there. */
enum rcache_way release_stack(struct block *b, unsigned way)
{
    struct stack *s = b->handle;
    unsigned char in;
    bool unmapped;

    (void)way;
    sem_post(&s->end);
    pthread_join(s->thread, NULL);
    unmapped = mincore(b->p, PAGE, &in) && errno == ENOMEM;
    free(s);
    return block_gone(b, unmapped ? WAY_STACK_UNMAPPED : WAY_STACK_KEPT);
}
