/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What tests of the registration cache share: a registrar that keeps books.
 * It never touches the memory, so addresses need not exist. It fails a test
 * when a range is deregistered that is not registered.
 */
#ifndef LAPSE_TESTS_RCACHE_H
#define LAPSE_TESTS_RCACHE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rcache/lapse_rcache.h"

struct books {
    _Atomic int asked;        /* calls of register_region */
    _Atomic int registered;   /* that succeeded */
    _Atomic int deregistered;
    _Atomic int wrong;        /* deregistered what was not registered */
    _Atomic int fail;         /* this many calls fail next */
    int error;                /* with this */
    size_t most;              /* bytes at once; `error` beyond; 0: any */
    size_t room;              /* regions that fit: -ENOMEM beyond; 0: any */
    void (*before_deregister)(void);
    void (*meanwhile)(struct books *b, void *addr, size_t len);
    lapse_rcache *cache;
    void *arg;
};

#define BOOKS_MAGIC 0x600dbeef

struct books_memory {
    uint32_t magic;
    uint32_t number;
};

static inline int books_register(void *addr, size_t len, unsigned access,
                                 void *memory, void *arg)
{
    struct books *b = arg;
    struct books_memory *m = memory;

    (void)access;
    b->asked++;
    if (b->meanwhile)
        b->meanwhile(b, addr, len);
    if (b->fail > 0) {
        b->fail--;
        return b->error;
    }
    if (b->most && len > b->most)
        return b->error;
    if (b->room &&
        (size_t)(b->registered - b->deregistered) >= b->room)
        return -ENOMEM;
    m->magic = BOOKS_MAGIC;
    m->number = (uint32_t)++b->registered;
    return 0;
}

static inline void books_deregister(void *addr, size_t len, void *memory,
                                    void *arg)
{
    struct books *b = arg;
    struct books_memory *m = memory;

    (void)addr, (void)len;
    if (b->before_deregister)
        b->before_deregister();
    if (m->magic != BOOKS_MAGIC)
        b->wrong++;
    m->magic = 0;
    b->deregistered++;
}

static inline lapse_rcache *books_cache(struct books *b,
                                        struct lapse_rcache_limits limits)
{
    struct lapse_rcache_ops ops = {.size = sizeof(ops),
                                   .region_bytes =
                                       sizeof(struct books_memory),
                                   .register_region = books_register,
                                   .deregister_region = books_deregister,
                                   .arg = b};
    int err;

    limits.size = sizeof(limits);
    err = lapse_rcache_create(&ops, &limits, &b->cache);
    if (err) {
        fprintf(stderr, "lapse_rcache_create: %s\n", strerror(-err));
        abort();
    }
    return b->cache;
}

static inline struct lapse_rcache_stats stats_of(lapse_rcache *c)
{
    struct lapse_rcache_stats s = {.size = sizeof(s)};

    if (lapse_rcache_stats(c, &s))
        abort();
    return s;
}

/* Got and put; -errno. */
static inline int touch(lapse_rcache *c, const void *addr, size_t len)
{
    lapse_region *r;
    int err = lapse_rcache_get(c, addr, len, LAPSE_RCACHE_READ, &r);

    if (!err)
        lapse_rcache_put(c, r);
    return err;
}

#endif
