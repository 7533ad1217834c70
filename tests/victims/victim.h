/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the victims share. A victim is a plain program that knows nothing of
 * lapse: it checks itself, prints "ok WHAT" lines that are the same in every
 * run, and exits 0; or says on stdout what differed and exits 1.
 */
#ifndef VICTIM_H
#define VICTIM_H

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ul

static int victim_failures;

/* Says what differed; the victim goes on and exits 1 in the end. */
__attribute__((format(printf, 1, 2), unused))
static void differs(const char *format, ...)
{
    va_list list;

    printf("DIFFERS: ");
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
    victim_failures++;
}

/* One line for what was checked, good or bad. */
__attribute__((unused))
static void check(int good, const char *what)
{
    if (good)
        printf("ok %s\n", what);
    else
        differs("%s", what);
}

static inline int victim_end(void)
{
    fflush(stdout);
    return victim_failures != 0;
}

/* The kernel's own answer: what a libc function must be equal to. */
static inline long raw(long nr, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long ret;

    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8),
                       "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}
#define RAW_(nr, a, b, c, d, e, f, ...)                                    \
    raw(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define RAW(...) RAW_(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

/* Private pages, written to, so that a release has something to release. */
__attribute__((unused))
static char *fresh(size_t len)
{
    char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        perror("victim: mmap");
        _exit(2);
    }
    memset(p, 0x5a, len);
    return p;
}

/* The compiler may not take out the malloc and free of this pointer. */
#define KEEP(p) __asm__ volatile("" : "+r"(p) : : "memory")

__attribute__((unused))
static void churn(size_t bytes)
{
    char *p = malloc(bytes);

    KEEP(p);
    if (p)
        p[0] = p[bytes - 1] = 1;
    free(p);
}

__attribute__((unused))
static int is_mapped(const void *page)
{
    unsigned char core;

    return mincore((void *)page, PAGE, &core) == 0;
}

__attribute__((unused))
static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/*
 * Waits for a child, at most so many seconds of wall clock, and returns its
 * wait status; -1 if it had to be killed. Polls: no signal is used, since
 * signals are what some victims test.
 */
__attribute__((unused))
static int wait_for(pid_t pid, double limit)
{
    double end = seconds() + limit;
    int status;

    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (seconds() > end) {
            kill(pid, 9);
            waitpid(pid, &status, 0);
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return status;
}

/* The path of a file that stands beside this program. */
__attribute__((unused))
static const char *beside(const char *name)
{
    static char path[4352];
    ssize_t n = readlink("/proc/self/exe", path, 4096);

    while (n > 0 && path[n - 1] != '/')
        n--;
    snprintf(path + (n < 0 ? 0 : n), 256, "%s", name);
    return path;
}

#endif
