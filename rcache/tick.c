/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The thread that gives memory back when nobody looks anything up. It ticks:
 * to be woken by a release would cost the release a system call. It sleeps
 * for good while there is no region.
 */
#include "cache.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

static void wake(struct lapse_rcache *c)
{
    /* release: pairs with the acquire in sleep_until */
    atomic_fetch_add_explicit(&c->wakes, 1, memory_order_release);
    syscall(SYS_futex, &c->wakes, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void tick_wake(struct lapse_rcache *c)
{
    int err = errno;

    if (!c->asleep)
        return;
    c->asleep = false;
    wake(c);
    errno = err;
}

/* Half the documented time: a release just after a tick is in time. */
static struct timespec period(const struct lapse_rcache *c)
{
    uint64_t us = (uint64_t)c->limits.idle_ms * 500;

    return (struct timespec){.tv_sec = (time_t)(us / 1000000),
                             .tv_nsec = (long)(us % 1000000 * 1000)};
}

static void *tick_main(void *cache)
{
    struct lapse_rcache *c = cache;
    struct timespec tick = period(c);

    pthread_setname_np(pthread_self(), "lapse-rcache");
    for (;;) {
        uint32_t wakes =
            atomic_load_explicit(&c->wakes, memory_order_acquire);
        bool idle;

        if (atomic_load_explicit(&c->stop, memory_order_acquire))
            return NULL;
        cache_lock(c);
        idle = !c->lru.n;
        c->asleep = idle;
        cache_unlock(c);
        syscall(SYS_futex, &c->wakes, FUTEX_WAIT_PRIVATE, wakes,
                idle ? NULL : &tick, NULL, 0);
        lapse_rcache_progress(c);
    }
}

int tick_start(struct lapse_rcache *c)
{
    int err;

    if (c->limits.idle_ms == LAPSE_RCACHE_NO_TICK)
        return 0;
    atomic_store_explicit(&c->stop, 0, memory_order_relaxed);
    c->tick = (struct lapse_thread){.start = tick_main, .arg = c};
    err = lapse_thread_start(&c->tick, &c->thread);
    c->has_thread = !err;
    return err;
}

void tick_stop(struct lapse_rcache *c)
{
    int state;

    if (!c->has_thread)
        return;
    atomic_store_explicit(&c->stop, 1, memory_order_release);
    wake(c);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state); /* in the join */
    pthread_join(c->thread, NULL);
    pthread_setcancelstate(state, NULL);
    c->has_thread = false;
}
