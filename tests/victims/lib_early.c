/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library whose constructor releases memory and starts a thread that does,
 * before main; for constructor.c.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096ul

int lib_early_good;
static int in_thread;

static int release(void)
{
    char *p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *q = malloc(1 << 20);

    if (p == MAP_FAILED || !q)
        return 0;
    p[0] = q[0] = 1;
    __asm__ volatile("" : "+r"(q)); /* or malloc and free are taken out */
    free(q);
    return madvise(p, PAGE, MADV_DONTNEED) == 0 && p[0] == 0 &&
           munmap(p, 4 * PAGE) == 0;
}

static void *run(void *unused)
{
    in_thread = release();
    return unused;
}

__attribute__((constructor)) static void begin(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, run, NULL) ||
        pthread_join(thread, NULL))
        return;
    lib_early_good = release() && in_thread;
}
