/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The protocol of lapse.h, as a small cache of registrations that is real
 * enough to be wrong: a registration is a second mapping of the same pages,
 * which, like a device, goes on seeing the old ones when the memory at that
 * address has become another. So the program can look for itself whether its
 * cache handed out a stale one. Prints what it was told; exit status 0 if it
 * was told all of it, 1 if not.
 *
 *     cc example_protocol.c -llapse
 */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "lapse.h"

#define SIZE ((size_t)65536)
#define ENTRIES 8
#define EVENTS 16

struct entry {
    char *addr;
    char *view; /* the registration; NULL = no entry */
    size_t len;
};

struct cache {
    pthread_mutex_t lock; /* of whatever else does lookups */
    lapse_handle told;
    struct entry entry[ENTRIES];
    unsigned misses;
    uint32_t reason; /* of the event that overlapped an entry last */
};

/* Needs MAP_SHARED memory: with an old size of 0, mremap duplicates it. */
static char *pin(char *addr, size_t len)
{
    void *view = mremap(addr, 0, len, MREMAP_MAYMOVE);

    return view == MAP_FAILED ? NULL : view;
}

static void unpin(char *view, size_t len)
{
    munmap(view, len); /* a release too, but nobody watches it */
}

/* OVERFLOW is 0 to SIZE_MAX: it overlaps everything, no special case. */
static bool overlaps(const struct lapse_event *event, const char *addr,
                     size_t len)
{
    return event->addr < (uintptr_t)addr + len &&
           (uintptr_t)addr < event->addr + event->len;
}

static void drop(struct cache *c, struct entry *e)
{
    unpin(e->view, e->len);
    lapse_unwatch(c->told, e->addr, e->len);
    e->view = NULL;
}

static void drop_overlapping(struct cache *c, const struct lapse_event *event)
{
    for (struct entry *e = c->entry; e < c->entry + ENTRIES; e++)
        if (e->view && overlaps(event, e->addr, e->len)) {
            printf("  told: %s of %zu bytes%s\n",
                   lapse_reason_name(event->reason), event->len,
                   event->flags & LAPSE_EVENT_OPEN ? ", still open" : "");
            c->reason = event->reason;
            drop(c, e);
        }
}

/* One round of polling. Says whether something overlapped the range. */
static bool drain(struct cache *c, const char *addr, size_t len)
{
    struct lapse_event events[EVENTS];
    bool hit = false;
    int n;

    do {
        n = lapse_poll(c->told, events, EVENTS);
        if (n < 0) { /* no subscription any more: nothing can be trusted */
            events[0] = (struct lapse_event){.len = SIZE_MAX,
                                             .reason = LAPSE_REASON_OVERFLOW};
            n = 1;
        }
        for (int i = 0; i < n; i++) {
            drop_overlapping(c, &events[i]);
            hit |= overlaps(&events[i], addr, len);
        }
    } while (n == EVENTS);
    return hit;
}

static struct entry *find(struct cache *c, const char *addr, size_t len)
{
    for (struct entry *e = c->entry; e < c->entry + ENTRIES; e++)
        if (e->view && e->addr == addr && e->len == len)
            return e;
    return NULL;
}

static struct entry *free_one(struct cache *c)
{
    for (struct entry *e = c->entry; e < c->entry + ENTRIES; e++)
        if (!e->view)
            return e;
    drop(c, &c->entry[0]); /* a better cache would choose */
    return &c->entry[0];
}

/* A release that is open is told at every try, so this goes on until it is
 * over. Only the releasing system call is waited for. */
static char *registration_make(struct cache *c, char *addr, size_t len)
{
    char *view;

    for (;;) {
        if (lapse_watch(c->told, addr, len)) /* before pinning */
            return NULL;
        view = pin(addr, len);
        if (view && !(lapse_pending(c->told) && drain(c, addr, len)))
            return view;
        if (view)
            unpin(view, len);
        lapse_unwatch(c->told, addr, len);
        if (!view)
            return NULL; /* there is no such memory */
        sched_yield();
    }
}

/* The registration of a range, or NULL. */
static char *lookup(struct cache *c, char *addr, size_t len)
{
    struct entry *e;
    char *view = NULL;

    pthread_mutex_lock(&c->lock);
    if (lapse_pending(c->told)) /* one load */
        drain(c, addr, len);
    e = find(c, addr, len);
    if (e) {
        view = e->view;
    } else {
        c->misses++;
        view = registration_make(c, addr, len);
        if (view)
            *free_one(c) = (struct entry){addr, view, len};
    }
    pthread_mutex_unlock(&c->lock);
    return view;
}

/* Does a lookup find what it has to, and does it see this very memory? */
static bool expect(struct cache *c, char *addr, const char *what, bool miss,
                   unsigned reason)
{
    static char value;
    unsigned misses = c->misses;
    char *view;
    bool good;

    printf("%s\n", what);
    c->reason = UINT32_MAX;
    view = lookup(c, addr, SIZE);
    if (!view) {
        printf("  FAIL: no registration\n");
        return false;
    }
    *addr = ++value;
    good = *view == value && (c->misses != misses) == miss &&
           c->reason == (miss && misses ? reason : UINT32_MAX);
    printf("  lookup: %s, registration %s%s\n",
           c->misses != misses ? "miss" : "hit",
           *view == value ? "good" : "STALE", good ? "" : ": FAIL");
    return good;
}

static char *map(void *at, int flags)
{
    return mmap(at, SIZE, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS | flags, -1, 0);
}

static bool run(struct cache *c)
{
    char *a = map(NULL, 0), *other = map(NULL, 0), *moved;
    bool good;

    if (a == MAP_FAILED || other == MAP_FAILED)
        return false;
    good = expect(c, a, "first use", true, 0);
    good &= expect(c, a, "second use", false, 0);

    munmap(other, SIZE);
    good &= expect(c, a, "other memory unmapped", false, 0);

    munmap(a, SIZE);
    if (map(a, MAP_FIXED_NOREPLACE) != a)
        return false;
    good &= expect(c, a, "unmapped, and the same address got again", true,
                   LAPSE_REASON_MUNMAP);

    if (map(a, MAP_FIXED) != a)
        return false;
    good &= expect(c, a, "mapped over", true, LAPSE_REASON_REPLACE);

    moved = mremap(
        a, SIZE, 2 * SIZE, MREMAP_MAYMOVE | MREMAP_FIXED,
        mmap(NULL, 2 * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (moved == MAP_FAILED || map(a, MAP_FIXED_NOREPLACE) != a)
        return false;
    good &= expect(c, a, "moved away, and the same address got again", true,
                   LAPSE_REASON_MREMAP);

    lapse_publish(a, SIZE);
    good &= expect(c, a, "given back to a pool of the program's", true,
                   LAPSE_REASON_USER);
    return good;
}

int main(void)
{
    struct cache c = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct lapse_subscription how = {.size = sizeof(how),
                                     .delivery = LAPSE_POLL};
    int err = lapse_subscribe(&how, &c.told);
    bool good;

    if (err) {
        printf("lapse_subscribe: %s\n", strerror(-err));
        return 1;
    }
    good = run(&c);
    for (struct entry *e = c.entry; e < c.entry + ENTRIES; e++)
        if (e->view)
            drop(&c, e);
    err = lapse_unsubscribe(c.told);
    good &= !err;
    printf("%s\n", good ? "all told" : "FAIL");
    return good ? 0 : 1;
}
