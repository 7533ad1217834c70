/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program with an allocator of its own, that releases memory inside malloc
 * (as jemalloc and mimalloc do) and is first called before anybody's
 * constructor, when it calls mmap, getenv, open and sysconf. Built as a library
 * too, for case G1; with FIRST_ONLY one that does so in its first call alone.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "victim.h"

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

static char page[PAGE] __attribute__((aligned(4096)));
static atomic_ulong calls, failures;
static atomic_flag started = ATOMIC_FLAG_INIT;
#ifndef FIRST_ONLY
#define FIRST_ONLY 0
#endif

static void purge(void)
{
    void *p;

    if (!atomic_flag_test_and_set(&started)) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

        if (fd < 0 || sysconf(_SC_NPROCESSORS_ONLN) < 1 ||
            (getenv("PATH") && !*getenv("PATH")))
            atomic_fetch_add(&failures, 1);
        close(fd);
    } else if (FIRST_ONLY) {
        return;
    }
    p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
             -1, 0);
    if (p == MAP_FAILED || munmap(p, PAGE) ||
        madvise(page, PAGE, MADV_DONTNEED))
        atomic_fetch_add(&failures, 1);
    atomic_fetch_add(&calls, 1);
}

void *malloc(size_t n)
{
    purge();
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    purge();
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    purge();
    return __libc_realloc(p, n);
}

void free(void *p)
{
    int saved = errno;

    purge();
    errno = saved;
    __libc_free(p);
}

static void *worker(void *unused)
{
    for (int i = 0; i < 2000; i++) {
        void *p = malloc(100 + (size_t)i * 100), *q = calloc(10, 10);

        KEEP(p);
        KEEP(q);
        p = realloc(p, 300000);
        KEEP(p);
        free(p);
        free(q);
    }
    return unused;
}

int main(void)
{
    pthread_t thread[2];
    void *handle, *p;
    pid_t pid;

    page[0] = 1;
    p = malloc(10);
    KEEP(p);
    check(page[0] == 0, "malloc releases a page");
    free(p);
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, worker, NULL);
    for (int i = 0; i < 5; i++) {
        handle = dlopen(beside("lib_release.so"), RTLD_NOW);
        check(handle && dlclose(handle) == 0, "dlopen and dlclose");
    }
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        worker(NULL);
        _exit(0);
    }
    check(wait_for(pid, 20) == 0, "a forked child");
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    check(atomic_load(&calls) > 12000, "own malloc was used");
    check(atomic_load(&failures) == 0, "no release failed");
    return victim_end();
}
