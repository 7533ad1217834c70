/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The registrar's two functions: asking again when there is no room. A thread
 * is not cancelled in them, nor while it waits here: what it began, nobody else
 * could end.
 */
#include "cache.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

#define PATIENCE_NS 100000000
#define EVICT_MOST 1024

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

bool patience_left(struct patience *p)
{
    static const struct timespec ts = {.tv_nsec = 50000};
    int err = errno, state;

    if (!p->until)
        p->until = now_ns() + PATIENCE_NS;
    else if (now_ns() > p->until)
        return false;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    if (p->tries++ < 8)
        sched_yield();
    else
        nanosleep(&ts, NULL);
    pthread_setcancelstate(state, NULL);
    errno = err;
    return true;
}

bool registrar_wants_room(int err)
{
    return err == -ENOMEM || err == -EAGAIN;
}

static int ask_once(struct lapse_rcache *c, struct lapse_region *r)
{
    size_t len = region_end(r) - region_start(r);
    int kept = errno, state, err;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    err = c->ops.register_region(
        (void *)region_start(r), len,
        atomic_load_explicit(&r->access, memory_order_relaxed),
        lapse_region_memory(r), c->ops.arg);
    pthread_setcancelstate(state, NULL);
    errno = kept;
    if (err)
        return err < 0 ? err : -err;
    atomic_fetch_add_explicit(&c->registered, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->registered_bytes, len,
                              memory_order_relaxed);
    return 0;
}

/* Room is made where that can help, and waited for where another thread is
 * about to make it: it may be deregistering just what is in the way. */
int registrar_ask(struct lapse_rcache *c, struct lapse_region *r)
{
    struct patience p = {0};
    bool dropped = false;
    unsigned n = 1;

    for (;;) {
        uint32_t leaving =
            atomic_load_explicit(&c->leaving, memory_order_relaxed);
        int err = ask_once(c, r);

        if (!err || (!registrar_wants_room(err) && err != -EEXIST))
            return err;
        if (err == -EEXIST && !dropped) {
            evict_overlapping(c, region_start(r), region_end(r));
            dropped = true;
            continue;
        }
        if (registrar_wants_room(err) && evict_some(c, n)) {
            n = n < EVICT_MOST ? 2 * n : n;
            continue;
        }
        if (!leaving || !patience_left(&p))
            return err;
    }
}

void registrar_undo(struct lapse_rcache *c, struct lapse_region *r)
{
    uintptr_t start = region_start(r), end = region_end(r);
    int kept = errno, state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    c->ops.deregister_region((void *)start, end - start,
                             lapse_region_memory(r), c->ops.arg);
    pthread_setcancelstate(state, NULL);
    errno = kept;
    /* relaxed: numbers for people */
    atomic_fetch_add_explicit(&c->deregistered, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&c->registered_bytes, end - start,
                              memory_order_relaxed);
}
