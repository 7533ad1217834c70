/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the api_* programs share. Each is a client of lapse.h alone, linked
 * against the library; it prints a line per thing it checked and exits 1 if
 * one failed.
 */
#ifndef API_H
#define API_H

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lapse.h"

#define PAGE 4096ul

/* A sanitizer's allocator is not libc's, and does not survive every fork. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* The compiler may not take out the malloc and free of this pointer. */
#define KEEP(p) __asm__ volatile("" : "+r"(p) : : "memory")

static atomic_int api_failures;

__attribute__((format(printf, 2, 3), unused))
static bool check(bool good, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    printf("%s ", good ? "ok    " : "FAILED");
    vprintf(format, list);
    printf("\n");
    va_end(list);
    if (!good)
        atomic_fetch_add(&api_failures, 1);
    return good;
}

/* For what is not under test: nothing else makes sense without it. */
__attribute__((unused))
static void need(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "cannot go on: %s: %s\n", what, strerror(errno));
    _exit(2);
}

static inline int api_end(void)
{
    fflush(stdout);
    return atomic_load(&api_failures) != 0;
}

static inline uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void sleep_us(long us)
{
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

/* xorshift64*: state must not be 0. */
static inline uint64_t random_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dull;
}

/* Private pages, written to. */
__attribute__((unused))
static char *fresh(size_t len)
{
    char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    need(p != MAP_FAILED, "mmap");
    memset(p, 0x5a, len);
    return p;
}

/*
 * Reads eight bytes as a device would that pins them: whatever is mapped
 * there now, or nothing; never a fault. Meets a release at the kernel's lock.
 */
__attribute__((unused))
static bool pin_read(const void *addr, uint64_t *value)
{
    struct iovec mine = {value, sizeof *value};
    struct iovec there = {(void *)(uintptr_t)addr, sizeof *value};

    return process_vm_readv(getpid(), &mine, 1, &there, 1, 0) ==
           sizeof *value;
}

__attribute__((unused))
static lapse_handle subscribe(uint32_t delivery, uint32_t flags,
                              lapse_callback callback, void *arg)
{
    struct lapse_subscription how = {.size = sizeof how,
                                     .delivery = delivery,
                                     .flags = flags,
                                     .callback = callback,
                                     .arg = arg};
    lapse_handle s = {0};
    int err = lapse_subscribe(&how, &s);

    if (err) {
        fprintf(stderr, "lapse_subscribe: %s\n", strerror(-err));
        _exit(2);
    }
    return s;
}

static inline bool event_overlaps(const struct lapse_event *e,
                                  const void *addr, size_t len)
{
    uintptr_t a = (uintptr_t)addr;

    return (e->flags & LAPSE_EVENT_OVERFLOW) ||
           (e->addr < a + len && a < e->addr + e->len);
}

/* Waits for a child at most so long; -1 if it had to be killed. */
__attribute__((unused))
static int wait_for(pid_t pid, double limit)
{
    uint64_t end = now_ns() + (uint64_t)(limit * 1e9);
    int status;

    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (now_ns() > end) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return -1;
        }
        sleep_us(100);
    }
    return status;
}

#endif
