/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the api_free* programs share: a subscription to FREE, and blocks that
 * are watched, freed or resized, with what must be told of that.
 */
#ifndef API_FREE_H
#define API_FREE_H

#include <malloc.h>

#include "api.h"

#define EVENTS 1024
#define FREE_MASK LAPSE_MASK(LAPSE_REASON_FREE)

static struct lapse_event events[EVENTS];
static int event_count;
static lapse_handle sub;

static inline int subscribe_free(uint32_t delivery, uint32_t reasons,
                                 uint32_t flags, lapse_callback callback,
                                 lapse_handle *out)
{
    struct lapse_subscription how = {.size = sizeof how,
                                     .delivery = delivery,
                                     .flags = flags,
                                     .reasons = reasons,
                                     .callback = callback};

    return lapse_subscribe(&how, out);
}

static inline void drain(void)
{
    int n;

    event_count = 0;
    do {
        n = lapse_poll(sub, events + event_count, 16);
        need(n >= 0, "lapse_poll");
        event_count += n;
    } while (n == 16 && event_count < EVENTS - 16);
}

static inline void show(void)
{
    for (int i = 0; i < event_count; i++)
        printf("        told %s %#lx + %#zx flags %u\n",
               lapse_reason_name(events[i].reason),
               (unsigned long)events[i].addr, events[i].len, events[i].flags);
}

static inline bool is_free(const struct lapse_event *e, uintptr_t p, size_t len)
{
    return e->reason == LAPSE_REASON_FREE && e->addr == p && e->len == len &&
           e->flags == 0;
}

/* Of FREE, exactly this range and once; len 0: nothing at all. */
static inline void told(const char *what, uintptr_t p, size_t len)
{
    int frees = 0, right = 0;

    drain();
    for (int i = 0; i < event_count; i++) {
        frees += events[i].reason == LAPSE_REASON_FREE;
        right += is_free(&events[i], p, len);
    }
    if (!check(frees == (len != 0) && right == (len != 0),
               "%s: %s told (%d of FREE, %d right)", what,
               len ? "once, by the byte," : "nothing", frees, right)) {
        printf("        wanted %#lx + %#zx\n", (unsigned long)p, len);
        show();
    }
}

static inline size_t watched_len(void *p)
{
    size_t len = malloc_usable_size(p);

    need(p && len, "a block");
    need(lapse_watch(sub, p, len) == 0, "watch");
    return len;
}

static inline void unwatched(uintptr_t p, size_t len)
{
    KEEP(p); /* an address, not the block that was there */
    need(lapse_unwatch(sub, (void *)p, len) == 0, "unwatch");
    drain(); /* what the test itself freed nearby */
}

/* A block, freed by this function of one, two or three arguments. */
typedef void free_like(void *p, size_t a, size_t b);

static inline void freed_by(const char *what, void *p, free_like *f, size_t a,
                            size_t b)
{
    size_t len = watched_len(p);
    uintptr_t was = (uintptr_t)p;

    drain();
    f(p, a, b);
    told(what, was, len);
    unwatched(was, len);
}

static inline void by_free(void *p, size_t a, size_t b)
{
    (void)a;
    (void)b;
    KEEP(p);
    free(p);
}

typedef void *realloc_like(void *p, size_t size, size_t a);

/* Returns whether it stayed where it was. */
static inline bool resized_by(const char *what, void *p, realloc_like *f,
                              size_t size, size_t a, bool quiet)
{
    uintptr_t was = (uintptr_t)p;
    size_t len = watched_len(p), left;
    bool stayed;
    void *q;

    drain();
    q = f(p, size, a);
    need(q || !size, what);
    stayed = (uintptr_t)q == was;
    left = stayed ? malloc_usable_size(q) : 0;
    if (!quiet || !stayed || left != len)
        told(what, was + left, left < len ? len - left : 0);
    else {
        drain();
        check(event_count == 0, "%s, in place: nothing told", what);
    }
    free(q);
    unwatched(was, len);
    return stayed;
}

/* Output takes no block from the allocator; sub is there, or the end. */
static inline void free_begin(void)
{
    static char buffer[4096];

    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    alarm(120);
    if (!subscribe_free(LAPSE_POLL, FREE_MASK, 0, NULL, &sub))
        return;
    printf("FAILED FREE is not supported: LAPSE_FREE=1 is needed\n");
    exit(1);
}

#endif
