/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 64 threads at a time that map, unmap, allocate, free and exit, so that libc
 * reuses some of their stacks and releases others. What a thread wrote into
 * its memory is there until the thread released it.
 * Usage: threads [GENERATIONS]
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "victim.h"

#define THREADS 64
#define LOOPS 20

static atomic_int wrong;

static void fill(uint64_t *p, size_t bytes, uint64_t with)
{
    for (size_t i = 0; i < bytes / sizeof *p; i += 64)
        p[i] = with + i;
}

static int is_filled(const uint64_t *p, size_t bytes, uint64_t with)
{
    for (size_t i = 0; i < bytes / sizeof *p; i += 64)
        if (p[i] != with + i)
            return 0;
    return 1;
}

static void *worker(void *arg)
{
    uint64_t id = (uintptr_t)arg * 1000003;
    char stack_use[3 * PAGE];

    memset(stack_use, (int)id, sizeof stack_use);
    for (int i = 0; i < LOOPS; i++) {
        size_t big = 140000 + (id + i) % 7 * 50000;
        uint64_t *m = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        uint64_t *a = malloc(big), *b = malloc(3000);

        fill(m, 8 * PAGE, id + 1);
        fill(a, big, id + 2);
        fill(b, 3000, id + 3);
        munmap((char *)m + 4 * PAGE, 4 * PAGE);
        a = realloc(a, big * 2);
        if (!is_filled(m, 4 * PAGE, id + 1) || !is_filled(a, big, id + 2) ||
            !is_filled(b, 3000, id + 3))
            atomic_fetch_add(&wrong, 1);
        madvise(m, 4 * PAGE, MADV_DONTNEED);
        if (m[0] != 0)
            atomic_fetch_add(&wrong, 1);
        munmap(m, 4 * PAGE);
        free(a);
        free(b);
    }
    for (size_t i = 0; i < sizeof stack_use; i += 256)
        if (((volatile char *)stack_use)[i] != (char)id)
            atomic_fetch_add(&wrong, 1);
    if (id % 2)
        pthread_exit(arg);
    return arg;
}

int main(int argc, char **argv)
{
    int generations = argc > 1 ? atoi(argv[1]) : 5;
    pthread_t thread[THREADS];
    int made = 0, joined = 0;

    for (int g = 0; g < generations; g++) {
        for (int i = 0; i < THREADS; i++)
            made += pthread_create(&thread[i], NULL, worker,
                                   (void *)(uintptr_t)(g * THREADS + i)) == 0;
        for (int i = 0; i < THREADS; i++) {
            void *result;

            joined += pthread_join(thread[i], &result) == 0 &&
                      result == (void *)(uintptr_t)(g * THREADS + i);
        }
    }
    check(made == generations * THREADS, "all threads made");
    check(joined == made, "all threads joined");
    check(atomic_load(&wrong) == 0, "memory of all threads");
    return victim_end();
}
