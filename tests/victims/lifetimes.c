/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that begin and end: very many short ones, on reused stacks, joined
 * and detached; key destructors that release in every round that there is;
 * cancellation, deferred and asynchronous; threads made by clone() alone, which
 * share the thread pointer of who made them.
 * Usage: lifetimes [SHORT-THREADS]
 */
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "victim.h"

#define AT_ONCE 8
#define CANCELS 50
#define TWINS 4
#define TWIN_LOOPS 3000
#define STACK 65536

static atomic_ulong ran, detached, destroyed, cleaned, wrong;
static pthread_key_t key;

static void release(void)
{
    char *p = fresh(2 * PAGE);

    if (madvise(p, PAGE, MADV_DONTNEED) || p[0] || munmap(p, 2 * PAGE))
        atomic_fetch_add(&wrong, 1);
    churn(200000);
}

static void *short_one(void *stack)
{
    char here[2 * PAGE];

    memset(here, 1, sizeof here);
    release();
    if (stack) /* the stack's own begin, which libc releases */
        KEEP(stack);
    for (size_t i = 0; i < sizeof here; i += 64)
        if (((volatile char *)here)[i] != 1)
            atomic_fetch_add(&wrong, 1);
    atomic_fetch_add(&ran, 1);
    return NULL;
}

static void *detached_one(void *unused)
{
    release();
    atomic_fetch_add(&detached, 1);
    return unused;
}

static void test_short(unsigned long n)
{
    pthread_t thread[AT_ONCE], alone;
    unsigned long made = 0, let_go = 0;

    while (made < n) {
        for (int i = 0; i < AT_ONCE; i++)
            made += !pthread_create(&thread[i], NULL, short_one, NULL);
        if (!pthread_create(&alone, NULL, detached_one, NULL)) {
            pthread_detach(alone);
            let_go++;
        }
        for (int i = 0; i < AT_ONCE; i++)
            pthread_join(thread[i], NULL);
    }
    while (atomic_load(&detached) < let_go)
        sched_yield();
    printf("%lu short threads, %lu of them detached\n", made + let_go,
           let_go);
    check(atomic_load(&ran) == made, "all ran");
}

/* Sets it again, so that libc calls once more; ours is long gone, if any. */
static void destroy(void *round)
{
    release();
    atomic_fetch_add(&destroyed, 1);
    pthread_setspecific(key, (char *)round + 1);
}

static void *with_key(void *unused)
{
    pthread_setspecific(key, (void *)1);
    return unused;
}

static void test_keys(void)
{
    pthread_t thread;

    pthread_key_create(&key, destroy);
    for (int i = 0; i < 50; i++) {
        pthread_create(&thread, NULL, with_key, NULL);
        pthread_join(thread, NULL);
    }
    check(atomic_load(&destroyed) == 50 * PTHREAD_DESTRUCTOR_ITERATIONS,
          "key destructors release in every round");
}

static void clean(void *unused)
{
    (void)unused;
    release();
    atomic_fetch_add(&cleaned, 1);
}

static void *until_cancelled(void *at_once)
{
    pthread_cleanup_push(clean, NULL);
    if (at_once)
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (;;) {
        if (at_once) {
            madvise(at_once, PAGE, MADV_DONTNEED);
        } else {
            release();
            pthread_testcancel();
        }
    }
    pthread_cleanup_pop(1);
    return NULL;
}

static void test_cancel(void *page, const char *what)
{
    unsigned good = 0;
    pthread_t thread;
    void *result;

    atomic_store(&cleaned, 0);
    for (long i = 0; i < CANCELS; i++) {
        pthread_create(&thread, NULL, until_cancelled, page);
        nanosleep(&(struct timespec){.tv_nsec = i * 10000}, NULL);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        good += result == PTHREAD_CANCELED;
    }
    /* One that was cancelled before it ran has nothing to clean up. */
    check(good == CANCELS && atomic_load(&cleaned) <= CANCELS &&
              atomic_load(&cleaned) > 0, what);
}

/* No errno, no lock, no malloc: they are those of who made it. */
static int twin(void *unused)
{
    (void)unused;
    for (int i = 0; i < TWIN_LOOPS; i++) {
        char *p = (char *)RAW(SYS_mmap, 0, 2 * PAGE, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        p[0] = 1;
        if (madvise(p, PAGE, MADV_DONTNEED) || p[0] || munmap(p, 2 * PAGE))
            atomic_fetch_add(&wrong, 1);
    }
    RAW(SYS_exit, 0);
    return 0;
}

static void test_twins(void)
{
    static _Atomic int alive[TWINS];
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND |
                CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
    int made = 0;

    for (int i = 0; i < TWINS; i++) {
        atomic_store(&alive[i], 1);
        made += clone(twin, fresh(STACK) + STACK, flags, NULL, NULL, NULL,
                      &alive[i]) > 0;
    }
    for (int i = 0; i < TWIN_LOOPS; i++)
        release();
    for (int i = 0; i < TWINS; i++)
        while (atomic_load(&alive[i]))
            sched_yield();
    check(made == TWINS, "threads with one thread pointer");
}

/* On a stack that the program gave, and takes back. */
static void test_own_stack(void)
{
    pthread_attr_t attr;
    pthread_t thread;
    int good = 1;

    for (int i = 0; i < 50; i++) {
        char *stack = fresh(STACK);

        pthread_attr_init(&attr);
        pthread_attr_setstack(&attr, stack, STACK);
        good &= !pthread_create(&thread, &attr, short_one, stack);
        pthread_join(thread, NULL);
        pthread_attr_destroy(&attr);
        good &= !munmap(stack, STACK);
    }
    check(good, "stacks of the program's own, unmapped after each");
}

int main(int argc, char **argv)
{
    test_short(argc > 1 ? strtoul(argv[1], NULL, 0) : 3000);
    test_keys();
    test_cancel(NULL, "cancelled at a cancellation point");
    test_cancel(fresh(PAGE), "cancelled anywhere");
    test_twins();
    test_own_stack();
    check(atomic_load(&wrong) == 0, "every release did what it should");
    return victim_end();
}
