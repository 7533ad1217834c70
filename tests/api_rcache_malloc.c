/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cache never calls malloc: not to insert, look up, invalidate, evict or
 * deregister, nor the first time in a thread. malloc and its like are counted
 * here, on all threads; the registrar calls it, which does not count.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "rcache/lapse_rcache.h"
#include "shim/lapse.h"

#define PAGE ((size_t)4096)

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t m);
void *__libc_realloc(void *p, size_t n);

static _Atomic long counted, in_registrar;
static _Atomic bool counting;
static __thread int excused;

static void count(void)
{
    if (excused)
        in_registrar++;
    else if (counting)
        counted++;
}

void *malloc(size_t n)
{
    count();
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t m)
{
    count();
    return __libc_calloc(n, m);
}

void *realloc(void *p, size_t n)
{
    count();
    return __libc_realloc(p, n);
}

static int reg(void *addr, size_t len, unsigned access, void *memory,
               void *arg)
{
    (void)addr, (void)access, (void)arg;
    excused++;
    *(void **)memory = malloc(len % 100);
    excused--;
    return *(void **)memory ? 0 : -1;
}

static void dereg(void *addr, size_t len, void *memory, void *arg)
{
    (void)addr, (void)len, (void)arg;
    excused++;
    free(*(void **)memory);
    excused--;
}

static lapse_rcache *cache;
static char *memory;
static pthread_barrier_t barrier;

static void *worker(void *arg)
{
    unsigned long x = (unsigned long)arg * 77 + 1;
    lapse_region *r;

    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 20000; i++) {
        char *p = memory + (x = x * 6364136223846793005ul + 1) / (1ul << 33) %
                               2000 * PAGE;

        if (lapse_rcache_get(cache, p, PAGE * (x >> 40 & 7), 1, &r))
            continue;
        if (i % 5 == 0)
            madvise(p, PAGE, MADV_DONTNEED);
        if (i % 7 == 0)
            lapse_rcache_invalidate(cache, p, PAGE);
        if (i % 1000 == 0)
            lapse_rcache_flush(cache);
        lapse_rcache_put(cache, r);
    }
    pthread_barrier_wait(&barrier);
    return NULL;
}

int main(void)
{
    struct lapse_rcache_ops ops = {.size = sizeof(ops),
                                   .region_bytes = sizeof(void *),
                                   .register_region = reg,
                                   .deregister_region = dereg};
    struct lapse_rcache_limits limits = {.size = sizeof(limits),
                                         .max_regions = 500,
                                         .merge_bytes = 16 * PAGE,
                                         .idle_ms = 10};
    pthread_t t[3];

    memory = mmap(NULL, 2016 * PAGE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || lapse_rcache_create(&ops, &limits, &cache))
        return 2;
    pthread_barrier_init(&barrier, NULL, 4);
    for (long i = 0; i < 3; i++)
        pthread_create(&t[i], NULL, worker, (void *)i);
    counting = true;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    counting = false;
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    if (lapse_rcache_destroy(cache))
        return 1;
    printf("%ld calls by the registrar, %ld by the cache\n", in_registrar,
           counted);
    return counted || !in_registrar;
}
