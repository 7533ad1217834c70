/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registrars that come with the cache. Each *_open() fills in `ops`, to be
 * given to lapse_rcache_create(); each *_close() takes it back when the cache
 * was destroyed. They return 0 or -errno, keep errno, never call malloc (but
 * where it says dlopen), and are MT-safe where the cache calls them.
 */
#ifndef LAPSE_RCACHE_BACKENDS_H
#define LAPSE_RCACHE_BACKENDS_H

#include "lapse_rcache.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * Fixed buffers of an io_uring: a sparse table of `slots` buffers (at most
 * 16384) is registered with the ring, which must have none. The kernel pins
 * for reading and writing, whatever the access asked for, at most 1 GiB a
 * buffer, and counts it against RLIMIT_MEMLOCK; when slots or that limit run
 * out, regions not in use are evicted. The ring must not be one with
 * IORING_SETUP_SINGLE_ISSUER: any thread may deregister. Put a region when
 * the completions of all requests that name it were seen.
 */
int lapse_rcache_uring_open(int ring_fd, unsigned slots,
                            struct lapse_rcache_ops *ops);
/* Also unregisters the table. */
void lapse_rcache_uring_close(struct lapse_rcache_ops *ops);

/* For sqe->buf_index. */
static inline unsigned lapse_region_uring_index(lapse_region *region)
{
    return *(unsigned *)lapse_region_memory(region);
}

/*
 * mlock(): memory that is not paged out. Where regions overlap, a page is
 * unlocked with the last of them. A program that locks the same pages by
 * itself finds them unlocked.
 */
int lapse_rcache_mlock_open(struct lapse_rcache_ops *ops);
void lapse_rcache_mlock_close(struct lapse_rcache_ops *ops);

/*
 * Pinned host memory of CUDA: cudaHostRegister() if the runtime is there,
 * else cuMemHostRegister(), with the device or context that is current in the
 * calling thread; found with dlopen, in `library` or, NULL, under the usual
 * names. The driver refuses what overlaps: regions not in use go for it, with
 * one in use the get fails with -EEXIST.
 * -ENOENT: there is no such library. -ENODEV: no device, or no context.
 */
int lapse_rcache_cuda_open(const char *library,
                           struct lapse_rcache_ops *ops);
void lapse_rcache_cuda_close(struct lapse_rcache_ops *ops);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
