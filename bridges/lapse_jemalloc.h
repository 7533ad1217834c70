/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lapse and jemalloc 5: memory that is watched stays where it is when it is
 * freed.
 *
 * jemalloc gives the pages of freed memory back to the kernel after a while
 * (its decay), and registrations of them lapse. With this bridge it does not
 * do so while somebody watches them: the next malloc that gets the memory
 * finds its pages, and a cache its registration. When nobody watches them any
 * more they go the next time that jemalloc purges, or at lapse_jemalloc_purge.
 *
 * A library of its own, liblapse-jemalloc.so, linked or preloaded:
 *
 *     LD_PRELOAD="libjemalloc.so.2 liblapse.so.0 liblapse-jemalloc.so.0" prog
 *
 * It installs itself when it is loaded. Where there is no jemalloc it does
 * nothing. Functions return 0 or a count, and -errno on failure; what each
 * states is as in lapse.h.
 */
#ifndef LAPSE_JEMALLOC_H
#define LAPSE_JEMALLOC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * Put the bridge before the extent hooks of every arena there is that has it
 * not yet; what was there goes on being called. Automatic arenas, which would
 * come with the threads, are made now. Needed again after "arenas.create".
 * Returns 0; -ENOTSUP (no jemalloc, or none with extent hooks), -ENOSPC (2048
 * installed), or what mallctl() says.
 * MT yes; AS no; allocates; CB yes; fork: usable in the child.
 */
int lapse_jemalloc_install(void);

/*
 * Give back now what was kept and nobody watches any more, as a cache may
 * want after it has unwatched much in a program that then rests.
 * Returns the bytes given back.
 * MT yes; AS no; allocates nothing; CB yes; fork: usable in the child.
 */
ssize_t lapse_jemalloc_purge(void);

struct lapse_jemalloc_stats {
    size_t size;          /* in: sizeof(struct lapse_jemalloc_stats) */
    uint64_t installed;   /* arenas that got the bridge until now */
    uint64_t refused;     /* purges and the like refused until now */
    uint64_t unkept;      /* that were not: 4096 ranges were kept already */
    uint64_t kept_ranges; /* now */
    uint64_t kept_bytes;  /* now */
    uint64_t spare[4];    /* 0 */
};

/*
 * Counters since the start; in a child, since the parent's.
 * Returns 0; -EINVAL (NULL, or a size that is not known).
 * MT yes; AS yes; allocates nothing; CB yes; fork: usable in the child.
 */
int lapse_jemalloc_stats(struct lapse_jemalloc_stats *out);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
