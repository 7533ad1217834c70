/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Releases by many ways, from frames of many shapes, for stacks_gdb.sh: built
 * with optimisation and without frame pointers, so that only the tables of
 * .eh_frame lead back. A plain program that knows nothing of lapse.
 */
#include <alloca.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define PAGE 4096ul
#define KEEP(p) __asm__ volatile("" : "+r"(p) : : "memory")
#define PLAIN __attribute__((noinline, noclone))

static PLAIN void unmap(size_t pages)
{
    void *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    madvise(p, PAGE, MADV_DONTNEED);
    munmap(p, pages * PAGE);
    KEEP(p);
}

/* By glibc's free: munmap, and brk when the top is given back. */
static PLAIN void free_large(size_t bytes)
{
    char *p = malloc(bytes);

    p[0] = p[bytes - 1] = 1;
    KEEP(p);
    free(p);
    __asm__ volatile("" : : : "memory"); /* no tail call */
}

static PLAIN void free_top(void)
{
    char *p[64];

    for (int i = 0; i < 64; i++) {
        p[i] = malloc(100000);
        p[i][0] = 1;
    }
    for (int i = 0; i < 64; i++)
        free(p[i]);
    malloc_trim(0);
}

static PLAIN void move(void)
{
    char *p = malloc(300000);

    p = realloc(p, 3000000);
    KEEP(p);
    p = realloc(p, 400000);
    KEEP(p);
    free(p);
}

/* A frame whose size is known at run time alone: rbp leads back, and is as it
 * was in the hook. */
static PLAIN int with_alloca(int n)
{
    volatile char *p = alloca((size_t)n * 16);

    p[0] = 1;
    munmap(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
           PAGE);
    return p[0];
}

static PLAIN void unmap_at(int *pages)
{
    unmap((size_t)*pages);
    KEEP(pages);
}

static void (*volatile may_throw)(size_t) = unmap;

/* As any C++ function with a destructor: built with -fexceptions, its table has
 * a personality routine, found by way of memory that the loader writes. */
static PLAIN void with_cleanup(void)
{
    int pages __attribute__((cleanup(unmap_at))) = 2;

    may_throw(1);
    KEEP(pages);
}

/* All registers that C keeps are in use, and restored from the stack. */
static PLAIN long busy(long a, long b, long c, long d, long e, long f)
{
    long g = a * b, h = c * d, i = e * f;

    unmap(1);
    KEEP(g);
    KEEP(h);
    free_large(200000);
    return a + b * 3 + c * 5 + d * 7 + e * 11 + f * 13 + g + h + i;
}

static PLAIN int recurse(int depth)
{
    char local[100];

    memset(local, depth, sizeof(local));
    KEEP(depth);
    if (depth == 0) {
        unmap(2);
        return local[3];
    }
    return recurse(depth - 1) + local[depth];
}

static int compare(const void *a, const void *b)
{
    unmap(1);
    return *(const int *)a - *(const int *)b;
}

static void on_signal(int sig)
{
    unmap(3);
    KEEP(sig);
}

static ucontext_t outside, inside;

static void coroutine(void)
{
    free_large(500000);
    unmap(4);
    KEEP(outside.uc_link);
}

static PLAIN void in_coroutine(void)
{
    void *stack = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = 16 * PAGE;
    inside.uc_link = &outside;
    makecontext(&inside, coroutine, 0);
    swapcontext(&outside, &inside);
    munmap(stack, 16 * PAGE);
}

static void *thread(void *arg)
{
    for (int i = 0; i < 3; i++) {
        busy(1, 2, 3, 4, 5, i);
        free_top(); /* of an arena of its own: madvise or munmap */
        recurse(5);
    }
    return arg;
}

int main(void)
{
    int numbers[] = {5, 2, 4, 1, 3};
    pthread_t other;
    long sum = 0;

    signal(SIGUSR1, on_signal);
    for (int i = 1; i <= 5; i++) {
        sum += busy(i, 2, 3, 4, 5, 6) + with_alloca(i) + recurse(i * 4);
        free_top();
        move();
        with_cleanup();
        qsort(numbers, 5, sizeof(numbers[0]), compare);
        raise(SIGUSR1);
        in_coroutine();
    }
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, NULL);
    return sum == 42;
}
