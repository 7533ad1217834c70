/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who uses a region: a counter per thread and region, written by that thread
 * alone. What a region's counters of all threads add up to (modulo 2^32, since
 * any thread may put) is how often it is held. So a hit writes to no line that
 * another thread writes, not even on the same region.
 *
 * Invariant T1: a region that is DEAD, and whose sum was zero after that, is
 * held by nobody and will be by nobody. A holder adds, then looks at the state
 * (T2); who invalidates stores DEAD, makes a barrier, then sums (T3). The
 * barrier is the kernel's, membarrier, which makes every running thread pass
 * one: the holder's side needs none. Where there is no membarrier, the holder
 * adds with a locked instruction instead (`locked`).
 * A sum reads one counter after the other. Once DEAD, counters only go down,
 * but for a thread that adds, sees DEAD and takes it back from the same
 * counter; so a sum is never too small.
 * Who puts last: two may put at once, each seeing the other's counter as it
 * was. So a put that finds DEAD makes a full barrier before it sums (T4), and
 * one of the two at least sees zero; region_enter GOING is by
 * compare-and-swap, for the case that both do.
 */
#ifndef LAPSE_RCACHE_TALLY_H
#define LAPSE_RCACHE_TALLY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "region.h"

struct tally_mark {
    _Atomic uint32_t count; /* gets minus puts */
    uint32_t spare;
    _Atomic uint64_t used; /* when this thread got it last */
};

_Static_assert(sizeof(struct tally_mark) == 16, "index_mark() knows this");

/* A thread's clock: one more at each hit. At each miss the clock of its thread,
 * at each tick every clock that lags, is set to the latest of all; so what a
 * thread got since is later than what others got before. */

/* Of one thread. Never freed before the cache; a thread that ended leaves its
 * counts behind, and the next new one takes them over. */
struct tally {
    struct tally *next;
    _Atomic uint64_t owner; /* claims (32), tid (32) */
    /* Written by every hit: not at a place of its page at which the cache (or
     * another tally) has what every hit reads. */
    _Atomic uint64_t hits __attribute__((aligned(2048)));
    _Atomic uint64_t ahead; /* the clock is so much more; with the lock */
    struct tally_mark mark[REGIONS_MAX] __attribute__((aligned(2048)));
};

struct tallies {
    _Atomic(struct tally *) first;
    bool locked;
    struct tally *shared; /* of threads that got no memory for a tally, and of
                             tally_hold: added to with locked instructions */
    _Atomic uint32_t threads;
    _Atomic bool many; /* regions: marks in small pages would miss the TLB */
};
#define TALLIES_MANY 4096u

int tallies_init(struct tallies *all);
void tallies_free(struct tallies *all);

void tallies_many(struct tallies *all);

/* The calling thread's, found or made; NULL: no memory. pid: of the process */
struct tally *tally_claim(struct tallies *all, pid_t pid);

/* The kernel's barrier in every thread (T3). */
void tally_barrier(const struct tallies *all);

uint32_t tally_sum(const struct tallies *all, uint32_t index);
/* When any thread got it last; 0: none did. */
uint64_t tally_used(const struct tallies *all, uint32_t index);
/* With the lock: later than every clock; and let one, or none, lag behind. */
uint64_t tallies_now(const struct tallies *all);
void tally_sync(struct tally *t, uint64_t now);
void tallies_sync(const struct tallies *all, uint64_t now);
uint64_t tally_hits(const struct tallies *all);

/* See index_mark(). */
static inline struct tally_mark *tally_mark_at(struct tally *t, size_t mark)
{
    return (struct tally_mark *)((char *)t->mark + mark);
}

static inline struct tally_mark *tally_mark(struct tally *t, uint32_t index)
{
    return &t->mark[index];
}

/* Tests have the store buffers that T2 and T3 are about; see tests. */
#ifdef LAPSE_TEST_HOOKS
void rcache_test_add(_Atomic uint32_t *count, uint32_t n);
void rcache_test_fence(void);   /* of this thread's */
void rcache_test_barrier(void); /* of all threads' */
#else
#define rcache_test_fence() ((void)0)
#define rcache_test_barrier() ((void)0)
#endif
/* And another thread may come between where this stands. */
#ifdef LAPSE_TEST_HOOKS
void rcache_test_pause(void);
#else
#define rcache_test_pause() ((void)0)
#endif

/*
 * T2, where there is membarrier. relaxed load: nobody else writes it. release:
 * what its user did with the region, for who deregisters it (acquire in
 * tally_sum). The compiler's part of T2 is a fence for it alone; the
 * processor's is membarrier.
 */
static inline void tally_add_plain(struct tally_mark *m, uint32_t n)
{
#ifdef LAPSE_TEST_HOOKS
    rcache_test_add(&m->count, n);
#elif defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    /* The same in one instruction, where compilers make three. */
    __asm__ volatile("addl %1, %0" : "+m"(m->count) : "ri"(n) : "memory");
#else
    atomic_store_explicit(
        &m->count, atomic_load_explicit(&m->count, memory_order_relaxed) + n,
        memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static inline void tally_add_locked(struct tally *t, uint32_t index,
                                    uint32_t n)
{
    atomic_fetch_add_explicit(&t->mark[index].count, n, memory_order_seq_cst);
}

static inline void tally_add(const struct tallies *all, struct tally *t,
                             uint32_t index, uint32_t n)
{
    if (all->locked)
        tally_add_locked(t, index, n);
    else
        tally_add_plain(tally_mark(t, index), n);
}

/* Got; for the lru. relaxed: this thread's own; an order for eviction. */
static inline void tally_hit(struct tally *t, struct tally_mark *m)
{
    uint64_t hits = atomic_load_explicit(&t->hits, memory_order_relaxed) + 1;

    atomic_store_explicit(&t->hits, hits, memory_order_relaxed);
    hits += atomic_load_explicit(&t->ahead, memory_order_relaxed);
    atomic_store_explicit(&m->used, hits, memory_order_relaxed);
}

/* Who invalidated a region holds it until it has looked at it once more, so
 * that its last put does not take it off the list that it is on. */
static inline void tally_hold(const struct tallies *all, uint32_t index)
{
    /* seq_cst: before DEAD */
    atomic_fetch_add_explicit(&all->shared->mark[index].count, 1,
                              memory_order_seq_cst);
}

/* T4, too: a full barrier before the sum */
static inline void tally_unhold(const struct tallies *all, uint32_t index)
{
    atomic_fetch_sub_explicit(&all->shared->mark[index].count, 1,
                              memory_order_seq_cst);
}

/* T4 */
static inline void tally_fence(struct tally *t, uint32_t index)
{
    rcache_test_fence();
    atomic_fetch_add_explicit(&t->mark[index].count, 0, memory_order_seq_cst);
}

#endif
