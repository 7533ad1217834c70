/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preloaded behind liblapse, so that a victim runs with somebody who wants to
 * know: in a process without subscribers a hook does next to nothing. None of
 * them ever asks or ends, so records run out, too.
 * LIB_SUBSCRIBER=callback adds one that the library calls from its own thread,
 * and a descriptor that tells of events.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../../shim/lapse.h"

static unsigned long told;

/* Async-signal-safe, as INLINE asks for; in a callback as good. */
static void count(const struct lapse_event *event, void *arg)
{
    (void)event;
    (void)arg;
    __atomic_fetch_add(&told, 1, __ATOMIC_RELAXED);
}

static void subscribe(unsigned delivery, bool with_fd)
{
    struct lapse_subscription how = {
        .size = sizeof how,
        .delivery = delivery,
        .flags = LAPSE_ALL | LAPSE_FORK_KEEP,
        .callback = delivery == LAPSE_POLL ? NULL : count};
    lapse_handle s;

    if (lapse_subscribe(&how, &s) != 0)
        abort();
    if (with_fd && lapse_fd(s) < 0)
        abort();
}

__attribute__((constructor)) static void begin(void)
{
    const char *kind = getenv("LIB_SUBSCRIBER");

    bool more = kind && !strcmp(kind, "callback");

    subscribe(LAPSE_POLL, more);
    subscribe(LAPSE_INLINE, false);
    if (more)
        subscribe(LAPSE_CALLBACK, false);
}
