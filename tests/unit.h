/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What several unit tests want. They link the objects of shim/ only: no hook
 * is there, so releases are made by hand, of addresses that need not exist.
 */
#ifndef LAPSE_TESTS_UNIT_H
#define LAPSE_TESTS_UNIT_H

#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

#include "shim/lapse.h"
#include "shim/start.h"

#ifdef __SANITIZE_THREAD__
#define THREAD_SANITIZER 1
#else
#define THREAD_SANITIZER 0
#endif
#ifdef __SANITIZE_ADDRESS__
#define ADDRESS_SANITIZER 1
#else
#define ADDRESS_SANITIZER 0
#endif

#define UNIT_PAGE ((size_t)4096)
#define UNIT_RECORDS 64 /* the least there is: full soon */

static inline void *unit_at(size_t page)
{
    return (void *)(uintptr_t)(0x10000000 + page * UNIT_PAGE);
}

/* As the constructor of the library, with a small pool. */
static inline void unit_start(void)
{
    static char records[] = "LAPSE_RECORDS=64";
    char *environment[] = {records, NULL};

    shim_start(environment);
}

static inline lapse_handle unit_subscribe(uint32_t delivery, uint32_t flags,
                                          lapse_callback callback, void *arg)
{
    struct lapse_subscription how = {.size = sizeof(how),
                                     .delivery = delivery,
                                     .flags = flags,
                                     .callback = callback,
                                     .arg = arg};
    lapse_handle h = {0};

    cr_assert_eq(lapse_subscribe(&how, &h), 0);
    return h;
}

static inline lapse_handle unit_poller(uint32_t flags)
{
    return unit_subscribe(LAPSE_POLL, flags, NULL, NULL);
}

/* A thread that is inside a release until it is told to end it. */
struct unit_opener {
    pthread_t thread;
    sem_t begun, end;
    const void *addr;
    size_t len;
};

static inline void *unit_opener_main(void *arg)
{
    struct unit_opener *o = arg;
    lapse_release r;

    if (lapse_publish_begin(o->addr, o->len, &r))
        abort();
    sem_post(&o->begun);
    while (sem_wait(&o->end))
        ;
    lapse_publish_end(&r);
    return NULL;
}

static inline void unit_open(struct unit_opener *o, const void *addr,
                             size_t len)
{
    o->addr = addr;
    o->len = len;
    sem_init(&o->begun, 0, 0);
    sem_init(&o->end, 0, 0);
    cr_assert_eq(pthread_create(&o->thread, NULL, unit_opener_main, o), 0);
    while (sem_wait(&o->begun))
        ;
}

static inline void unit_close(struct unit_opener *o)
{
    sem_post(&o->end);
    pthread_join(o->thread, NULL);
}

static inline void unit_sleep_ms(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000,
                         .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

/* Wait until *what is n, at most a second; says what it was in the end. */
static inline int unit_await(_Atomic int *what, int n)
{
    for (int i = 0; i < 1000 && *what != n; i++)
        unit_sleep_ms(1);
    return *what;
}

#endif
