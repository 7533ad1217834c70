/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events of the program's own, in the trace: lapse_event_register and
 * lapse_event_write.
 *
 * A write takes a slot of the table of releases in flight for as long as it
 * lasts, and with it a ring, as a hook does (trace.h). So whoever writes while
 * another write is at work, in its encode function too, be it a signal handler
 * or encode itself, has another ring; there is no buffer to be lost or shared.
 *
 * A type is usable once its `ready` is set, which its handle comes after: a
 * handle that lapse_event_register() did not give is an error, in every build.
 */
#include "event.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "fork.h"
#include "hold.h"
#include "inflight.h"
#include "lapse.h"
#include "trace.h"
#include "trace_slot.h"

static struct event_type {
    _Atomic uint32_t ready;
    lapse_event_encode encode;
    struct trace_type told; /* for the file */
} types[TRACE_TYPES];
static _Atomic uint32_t types_taken;

uint32_t lapse_trace_on __attribute__((visibility("default")));

static uint32_t types_high(void)
{
    uint32_t n = atomic_load_explicit(&types_taken, memory_order_relaxed);

    return n < TRACE_TYPES ? n : TRACE_TYPES;
}

/* Twice at once is as good as once: both write the same. */
static void put_type(uint32_t index)
{
    struct trace_header *h = lapse_trace.header;
    struct trace_type *to =
        (struct trace_type *)((uint8_t *)h + h->types_at) + index;

    if (!trace_fill(to, sizeof(*to)))
        return; /* its events are there, and nameless */
    memcpy(to->name, types[index].told.name, sizeof(to->name));
    memcpy(to->layout, types[index].told.layout, sizeof(to->layout));
    __atomic_store_n(&to->ready, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&h->types, types_high(), __ATOMIC_RELAXED);
}

void events_start(void)
{
    uint32_t n = types_high();

    for (uint32_t i = 0; i < n; i++)
        if (atomic_load_explicit(&types[i].ready, memory_order_acquire))
            put_type(i);
    __atomic_store_n(&lapse_trace_on, 1, __ATOMIC_RELAXED);
}

void events_stop(void)
{
    __atomic_store_n(&lapse_trace_on, 0, __ATOMIC_RELAXED);
}

int lapse_event_register(const char *name, const char *layout,
                         lapse_event_encode encode, lapse_event_type *out)
{
    struct event_type *t;
    uint32_t index;

    if (!name || !*name || !encode || !out ||
        strlen(name) >= sizeof(t->told.name) ||
        (layout && strlen(layout) >= sizeof(t->told.layout)))
        return -EINVAL;
    if (fork_was_raw())
        return -ECHILD;
    index = atomic_load_explicit(&types_taken, memory_order_relaxed);
    do
        if (index >= TRACE_TYPES)
            return -ENOSPC;
    while (!atomic_compare_exchange_weak_explicit(
        &types_taken, &index, index + 1, memory_order_relaxed,
        memory_order_relaxed));
    t = &types[index];
    module_hold((const void *)(uintptr_t)encode);
    t->encode = encode;
    strcpy(t->told.name, name);
    strcpy(t->told.layout, layout ? layout : "");
    if (observing(OBSERVE_TRACE))
        put_type(index);
    /* release E1: pairs with E2 in find() */
    atomic_store_explicit(&t->ready, 1, memory_order_release);
    *out = (lapse_event_type){index + 1};
    return 0;
}

static struct event_type *find(lapse_event_type handle)
{
    uint32_t index = handle.index - 1; /* {0} becomes the largest */

    if (index >= TRACE_TYPES ||
        /* acquire E2: the rest of the type is there */
        !atomic_load_explicit(&types[index].ready, memory_order_acquire))
        return NULL;
    return &types[index];
}

static int put_event(unsigned slot, struct event_type *t, const void *event)
{
    struct trace_user *u = (struct trace_user *)trace_reserve(
        slot, TRACE_USER, sizeof(*u) + LAPSE_EVENT_MAX);
    size_t len;

    if (!u)
        return -ENOSPC;
    len = t->encode(u + 1, LAPSE_EVENT_MAX, event);
    if (len > LAPSE_EVENT_MAX)
        return -EMSGSIZE; /* not committed: it never was */
    u->type = (uint32_t)(t - types);
    u->len = (uint32_t)len;
    return trace_commit(slot, &u->head, (uint32_t)(sizeof(*u) + len))
               ? 0
               : -ECHILD;
}

int lapse_event_write(lapse_event_type handle, const void *event)
{
    struct event_type *t = find(handle);
    struct trace_slot slot;
    int err;

    if (!t)
        return -EBADF;
    if (!observing(OBSERVE_TRACE))
        return 0;
    if (fork_was_raw())
        return -ECHILD;
    if (!trace_slot_take(&slot))
        return -ENOSPC;
    err = put_event(trace_slot_number(&slot), t, event);
    trace_slot_give(&slot);
    return err;
}
