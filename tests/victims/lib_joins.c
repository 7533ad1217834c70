/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A module whose constructor and destructor make a thread that releases, join
 * it, release themselves, and let what waits be told, all under the loader's
 * lock; that may have a resolver of an indirect function which releases; and
 * that can subscribe with a callback of its own. For api_loader.c.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "../../shim/lapse.h"

#pragma weak lapse_drain
#pragma weak lapse_subscribe

#define PAGE 4096ul

unsigned long lib_joins_told;

static void release(void)
{
    char *p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *q = malloc(300000);

    p[0] = q[0] = 1;
    __asm__ volatile("" : "+r"(q));
    free(q);
    madvise(p, PAGE, MADV_DONTNEED);
    munmap(p, 4 * PAGE);
}

static void *run(void *unused)
{
    release();
    return unused;
}

static void all(void)
{
    pthread_t thread;

    if (!pthread_create(&thread, NULL, run, NULL))
        pthread_join(thread, NULL);
    release();
    if (lapse_drain)
        lapse_drain();
}

__attribute__((constructor)) static void begin(void)
{
    all();
}

__attribute__((destructor)) static void end(void)
{
    all();
}

/* The loader runs it while it relocates this module. */
static int one(void)
{
    return 1;
}

static int (*resolve(void))(void)
{
    char *p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    munmap(p, PAGE);
    return one;
}
int lib_joins_one(void) __attribute__((ifunc("resolve")));

static void count(const struct lapse_event *event, void *arg)
{
    (void)event;
    (void)arg;
    __atomic_fetch_add(&lib_joins_told, 1, __ATOMIC_RELAXED);
}

lapse_handle lib_joins_subscribe(void);
lapse_handle lib_joins_subscribe(void)
{
    struct lapse_subscription how = {.size = sizeof how,
                                     .delivery = LAPSE_CALLBACK,
                                     .flags = LAPSE_ALL,
                                     .callback = count};
    lapse_handle s = {0};

    if (lapse_subscribe)
        lapse_subscribe(&how, &s);
    return s;
}
