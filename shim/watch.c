/* SPDX-License-Identifier: BSD-3-Clause */
/* lapse_watch and lapse_unwatch. */
#include <errno.h>

#include "backstop.h"
#include "meet.h"
#include "probes.h"
#include "release.h"
#include "subscriber.h"
#include "trace.h"

static void trace_watch(unsigned kind, const struct subscriber *s,
                        uintptr_t start, uintptr_t end)
{
    trace_tell(TRACE_NO_SLOT, kind, 0, s,
               &(struct lapse_event){.addr = start, .len = end - start});
}

int lapse_watch(lapse_handle h, const void *addr, size_t len)
{
    struct subscriber *s;
    uintptr_t start, end;
    int err;

    err = subscriber_lock(h, &s);
    if (err)
        return err;
    err = range_of_user(addr, len, &start, &end) ? 0 : -EINVAL;
    if (!err) {
        release_hull_widen(start, end);
        release_free_widen(
            atomic_load_explicit(&s->reasons, memory_order_relaxed), start,
            end);
        err = filter_watch(&s->filter, start, end);
    }
    if (!err && lapse_backstop)
        lapse_backstop->watch(start, end);
    if (!err) {
        probe_watch(h.index, addr, len);
        /* before what it meets */
        trace_watch(TRACE_WATCH, s, start, end);
        meet_in_flight(s, start, end);
    }
    lock_drop(&s->lock);
    return err;
}

int lapse_unwatch(lapse_handle h, const void *addr, size_t len)
{
    struct subscriber *s;
    uintptr_t start, end;
    int err;

    err = subscriber_lock(h, &s);
    if (err)
        return err;
    err = range_of_user(addr, len, &start, &end)
              ? filter_unwatch(&s->filter, start, end)
              : -EINVAL;
    if (!err && lapse_backstop)
        lapse_backstop->unwatch(start, end);
    if (!err) {
        probe_unwatch(h.index, addr, len);
        trace_watch(TRACE_UNWATCH, s, start, end);
    }
    lock_drop(&s->lock);
    return err;
}

int lapse_watched(const void *addr, size_t len)
{
    uint64_t live = atomic_load_explicit(&lapse_live, memory_order_acquire);
    uintptr_t start, end;

    if (!range_of_user(addr, len, &start, &end))
        return -EINVAL;
    if (!release_in_hull(start, end))
        return 0;
    for (; live; live &= live - 1)
        if (filter_query(
                &lapse_subscribers.one[__builtin_ctzll(live)].filter, start,
                end))
            return 1;
    return 0;
}
