/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A registration cache on top of lapse.h. It keeps registrations (pinned
 * memory, keys of a device) for as long as the memory under them is there,
 * so that registering the same buffer again costs nanoseconds, and never
 * hands out one whose memory was released before the lookup began (G2).
 *
 *     lapse_rcache_get(c, buf, len, LAPSE_RCACHE_READ, &region);
 *     key = lapse_region_memory(region);     // what the registrar wrote
 *     ... let the device work, wait for it ...
 *     lapse_rcache_put(c, region);
 *
 * A hit takes no lock and writes to memory of the calling thread only. Each
 * prototype says: what it returns; thread-safe (MT); async-signal-safe (AS);
 * may allocate (the cache by mmap only, never malloc: the registrar may do as
 * it likes); may be called from a registrar's function (CB) and from a
 * LAPSE_CALLBACK one; what holds in a forked child (fork).
 * Functions return 0 or a count, or -errno, and leave errno alone.
 * The guarantees, and how to write a registrar: lapse-rcache(3).
 */
#ifndef LAPSE_RCACHE_H
#define LAPSE_RCACHE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Access rights. A region serves a get that wants no bit that it lacks; the
 * cache knows nothing else of them. 0x04 to 0x80 are the caller's to use. */
#define LAPSE_RCACHE_READ 0x1u  /* the device reads the memory */
#define LAPSE_RCACHE_WRITE 0x2u /* the device writes it */
#define LAPSE_RCACHE_ACCESS 0xffu

typedef struct lapse_rcache lapse_rcache;
typedef struct lapse_region lapse_region;

/*
 * The registrar. Both functions are called on any thread, the cache's own
 * included (all signals blocked there), several at once, with no lock of the
 * cache held. They may allocate, free, unmap, and use the cache.
 */
struct lapse_rcache_ops {
    size_t size;         /* sizeof(struct lapse_rcache_ops) */
    size_t region_bytes; /* of region memory; at most 4096, best 16 */
    /* Register [addr, addr + len), whole pages, and write what is needed to
     * use and to deregister it into `memory`: aligned to 16, with what an
     * earlier region left in it. Returns 0 or -errno. After -ENOMEM or
     * -EAGAIN regions not in use are evicted, after -EEXIST those of them that
     * overlap, and it is asked again; any other error goes to the caller. */
    int (*register_region)(void *addr, size_t len, unsigned access,
                           void *memory, void *arg);
    /* Undo it; must not fail. The memory may be gone from the address, and
     * other memory there: do not touch it. */
    void (*deregister_region)(void *addr, size_t len, void *memory,
                              void *arg);
    void *arg;
};

#define LAPSE_RCACHE_IDLE_MS 100u
#define LAPSE_RCACHE_NO_TICK UINT32_MAX

struct lapse_rcache_limits {
    size_t size;        /* sizeof(struct lapse_rcache_limits) */
    size_t max_regions; /* cached at once; 0: 1048576, which is the most */
    size_t max_bytes;   /* cached at once; 0: no limit */
    size_t align;       /* registrations are rounded outward to this; a power
                           of two; 0: a page. What cannot be registered so, or
                           would be over max_bytes, is made of pages. */
    size_t merge_bytes; /* a new registration takes in those it touches or
                           overlaps, up to this size; 0: it does not */
    uint32_t idle_ms;   /* memory that was released, and is not in use, is
                           deregistered after this time at the latest, though
                           nobody calls the cache; 0: LAPSE_RCACHE_IDLE_MS.
                           LAPSE_RCACHE_NO_TICK: no thread is made; call
                           lapse_rcache_progress() */
    uint32_t flags;     /* LAPSE_RCACHE_BLIND */
};

/* For tests that want to see stale hits: do not look for releases at all. */
#define LAPSE_RCACHE_BLIND 0x1u

/*
 * Make a cache. `limits` may be NULL. The registrar's code must stay loaded
 * until the cache is destroyed.
 * Returns 0; -EINVAL, -ENOMEM, -EAGAIN (no thread), or what lapse_subscribe()
 * says. MT yes; AS no; allocates (pthread_create may call malloc); CB yes;
 * fork: the child may make its own.
 */
int lapse_rcache_create(const struct lapse_rcache_ops *ops,
                        const struct lapse_rcache_limits *limits,
                        lapse_rcache **out);

/*
 * A region that covers [addr, addr + len) with these rights, registered now
 * if there is none. It stays registered until it was put as often as got,
 * whatever becomes of the memory.
 * Returns 0; -EINVAL (no length, no user memory, no such right), the
 * registrar's error, -ENOSPC (2^20 regions in use), -ENOMEM, -EDEADLK (a
 * registrar's function asks for what it is registering, or for what waits for
 * that), -EAGAIN (a release of this memory has been under way for 100 ms: use
 * it unregistered), -ESTALE (a forked child).
 * MT yes; AS no; allocates on a miss; CB yes; fork: -ESTALE in the child.
 */
#if defined(__GNUC__) && __GNUC__ >= 11 && !defined(__clang__)
__attribute__((access(none, 2))) /* it may be memory never written to */
#endif
int lapse_rcache_get(lapse_rcache *c, const void *addr, size_t len,
                     unsigned access, lapse_region **out);

/*
 * Give it back; any thread may. The last put of a region that was invalidated
 * deregisters it before it returns.
 * MT yes; AS no; allocates (mmap) at most; CB yes; fork: allowed in the
 * child, where it does nothing.
 */
void lapse_rcache_put(lapse_rcache *c, lapse_region *region);

/* What the registrar wrote. Between get and put. */
static inline void *lapse_region_memory(lapse_region *region)
{
    return (char *)region + 48;
}

/* The registered range: page-rounded, maybe larger than was asked for.
 * MT yes; AS yes; CB yes; fork: usable. Between get and put. */
void *lapse_region_addr(const lapse_region *region);
size_t lapse_region_len(const lapse_region *region);

/*
 * Say that the registrations of this memory lapse: what overlaps is out of
 * every later lookup, and deregistered now or at its last put.
 * Returns how many regions it hit; -EINVAL, -ESTALE.
 * MT yes; AS no; allocates nothing; CB yes; fork: -ESTALE.
 */
int lapse_rcache_invalidate(lapse_rcache *c, const void *addr, size_t len);

/* lapse_rcache_invalidate() of everything. */
int lapse_rcache_flush(lapse_rcache *c);

/*
 * Do what the cache's thread does: hear of releases, deregister what lapsed,
 * trim to the limits. For those who asked for no thread.
 * Returns 0; -ESTALE. MT yes; AS no; allocates nothing; CB yes.
 */
int lapse_rcache_progress(lapse_rcache *c);

struct lapse_rcache_stats {
    size_t size;              /* in: sizeof(struct lapse_rcache_stats) */
    uint64_t regions;         /* that lookups find, now */
    uint64_t bytes;           /* of those */
    uint64_t lapsed;          /* out of lookups, not deregistered yet, now */
    uint64_t hits, misses;    /* gets that found one, and that did not */
    uint64_t registered;      /* successful calls of register_region */
    uint64_t deregistered;    /* calls of deregister_region */
    uint64_t registered_bytes; /* registered and not deregistered, now */
    uint64_t invalidated;     /* regions, by releases or by the caller */
    uint64_t evicted;         /* regions, by limits or for the registrar */
    uint64_t merged;          /* regions, taken in by a larger one */
    uint64_t retried;         /* registrations that met a release */
    uint64_t failed;          /* gets that returned an error */
    uint64_t threads;         /* that counters are kept for */
    uint64_t memory;          /* bytes mapped by the cache; counters of
                                 threads aside */
    uint64_t spare[5];
};

/*
 * A snapshot; counters that move meanwhile may be torn apart.
 * Returns 0; -EINVAL. MT yes; AS no; allocates nothing; CB yes; fork: -ESTALE.
 */
int lapse_rcache_stats(lapse_rcache *c, struct lapse_rcache_stats *out);

/*
 * Deregister everything and free the cache. No other thread may use it.
 * Returns 0; -EBUSY: regions are in use. Then the cache is empty and works
 * on: put them, and destroy it. Also where deregister_region gets one, however
 * often: then that one is in the cache.
 * MT no; AS no; allocates nothing; CB no (-EDEADLK on the cache's thread);
 * fork: the child may; the registrar is not called.
 */
int lapse_rcache_destroy(lapse_rcache *c);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
