/* SPDX-License-Identifier: BSD-3-Clause */
#include "tally.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pieces.h"

static int membarrier(int command)
{
    int err = errno;
    int result = (int)syscall(SYS_membarrier, command, 0, 0);

    errno = err;
    return result;
}

int tallies_init(struct tallies *all)
{
    all->shared = pieces_map(sizeof(struct tally));
    if (!all->shared)
        return -ENOMEM;
    all->locked =
        membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0;
    return 0;
}

void tallies_free(struct tallies *all)
{
    struct tally *t = atomic_load_explicit(&all->first, memory_order_acquire);

    for (struct tally *next; t; t = next) {
        next = t->next;
        pieces_unmap(t, sizeof(*t));
    }
    pieces_unmap(all->shared, sizeof(*all->shared));
}

void tallies_many(struct tallies *all)
{
    struct tally *t = atomic_load_explicit(&all->first, memory_order_acquire);

    /* relaxed: one that is made at the same moment stays as it is */
    atomic_store_explicit(&all->many, true, memory_order_relaxed);
    for (; t; t = t->next)
        pieces_make_huge(t);
}

/* A dead thread's stores are all visible: the kernel saw it end. */
static bool dead(pid_t pid, pid_t tid)
{
    int err = errno;
    bool gone = syscall(SYS_tgkill, pid, tid, 0) && errno == ESRCH;

    errno = err;
    return gone;
}

static pid_t tid_of(uint64_t owner)
{
    return (pid_t)(uint32_t)owner;
}

/* Each claim counts, in the upper half: a thread that ended may have been
 * followed, since we asked for it, by one of the same tid that claimed this.
 * acquire: after the last owner, and who took it from him */
static bool take(struct tally *t, uint64_t owner, pid_t self)
{
    uint64_t claim = ((owner >> 32) + 1) << 32 | (uint32_t)self;

    return atomic_compare_exchange_strong_explicit(
        &t->owner, &owner, claim, memory_order_acq_rel, memory_order_relaxed);
}

static struct tally *find(struct tallies *all, pid_t pid, pid_t self)
{
    struct tally *t = atomic_load_explicit(&all->first, memory_order_acquire);
    struct tally *begin = t;

    for (; t; t = t->next) {
        uint64_t owner = atomic_load_explicit(&t->owner, memory_order_relaxed);

        if (tid_of(owner) == self && take(t, owner, self))
            return t;
    }
    for (t = begin; t; t = t->next) {
        uint64_t owner = atomic_load_explicit(&t->owner, memory_order_relaxed);

        if (!dead(pid, tid_of(owner)))
            continue;
        rcache_test_pause();
        if (take(t, owner, self))
            return t;
    }
    return NULL;
}

struct tally *tally_claim(struct tallies *all, pid_t pid)
{
    pid_t self = (pid_t)syscall(SYS_gettid);
    struct tally *t = find(all, pid, self);

    if (t)
        return t;
    t = pieces_map_large(sizeof(*t));
    if (!t)
        return NULL;
    if (atomic_load_explicit(&all->many, memory_order_relaxed))
        pieces_make_huge(t);
    atomic_store_explicit(&t->owner, (uint32_t)self, memory_order_relaxed);
    t->next = atomic_load_explicit(&all->first, memory_order_relaxed);
    /* seq_cst: before the first count, as the look at `first` in a sum comes
     * after DEAD (T1) */
    while (!atomic_compare_exchange_weak_explicit(
        &all->first, &t->next, t, memory_order_seq_cst, memory_order_relaxed))
        ;
    atomic_fetch_add_explicit(&all->threads, 1, memory_order_relaxed);
    return t;
}

void tally_barrier(const struct tallies *all)
{
    if (all->locked)
        return;
    membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    rcache_test_barrier();
}

uint32_t tally_sum(const struct tallies *all, uint32_t index)
{
    uint32_t sum = atomic_load_explicit(&all->shared->mark[index].count,
                                        memory_order_seq_cst);
    struct tally *t = atomic_load_explicit(&all->first, memory_order_seq_cst);

    for (; t; t = t->next)
        sum += atomic_load_explicit(&t->mark[index].count,
                                    memory_order_seq_cst);
    return sum;
}

uint64_t tally_used(const struct tallies *all, uint32_t index)
{
    struct tally *t = atomic_load_explicit(&all->first, memory_order_acquire);
    uint64_t used = 0;

    /* relaxed: an order for eviction; nothing else hangs on it */
    for (; t; t = t->next) {
        uint64_t mine = atomic_load_explicit(&t->mark[index].used,
                                             memory_order_relaxed);
        if (mine > used)
            used = mine;
    }
    return used;
}

static uint64_t clock_of(struct tally *t)
{
    return atomic_load_explicit(&t->hits, memory_order_relaxed) +
           atomic_load_explicit(&t->ahead, memory_order_relaxed);
}

uint64_t tallies_now(const struct tallies *all)
{
    struct tally *t = atomic_load_explicit(&all->first, memory_order_acquire);
    uint64_t latest = 0;

    for (; t; t = t->next) {
        uint64_t clock = clock_of(t);

        if (clock > latest)
            latest = clock;
    }
    return latest + 1;
}

void tally_sync(struct tally *t, uint64_t now)
{
    uint64_t clock = clock_of(t);

    if (clock < now)
        atomic_fetch_add_explicit(&t->ahead, now - clock,
                                  memory_order_relaxed);
}

void tallies_sync(const struct tallies *all, uint64_t now)
{
    struct tally *t = atomic_load_explicit(&all->first, memory_order_acquire);

    for (; t; t = t->next)
        tally_sync(t, now);
}

uint64_t tally_hits(const struct tallies *all)
{
    struct tally *t = atomic_load_explicit(&all->first, memory_order_acquire);
    uint64_t hits = 0;

    for (; t; t = t->next)
        hits += atomic_load_explicit(&t->hits, memory_order_relaxed);
    return hits;
}
