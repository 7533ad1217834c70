/* SPDX-License-Identifier: BSD-3-Clause */
/* What the programs that try LAPSE_BACKSTOP=uffd share. */
#ifndef BACKSTOP_H
#define BACKSTOP_H

#include <sys/syscall.h>

#include "api.h"
#include "shim/sys.h"

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static lapse_handle sub;
static struct lapse_event events[256];
static int event_count;
static int late; /* OVERFLOW instead of what was released */

static void drain(void)
{
    int n;

    event_count = 0;
    do {
        n = lapse_poll(sub, events + event_count, 16);
        need(n >= 0, "lapse_poll");
        event_count += n;
    } while (n == 16 && event_count < 240);
}

/* Until nothing waits any more: records that are kept open close. */
static void drain_all(void)
{
    uint64_t end = now_ns() + 2000000000u;

    while (lapse_pending(sub) && now_ns() < end)
        drain();
}

__attribute__((unused))
static char *watched(size_t pages)
{
    char *p = fresh(pages * PAGE);

    need(lapse_watch(sub, p, pages * PAGE) == 0, "lapse_watch");
    drain_all();
    return p;
}

/* Told right after it, for that reason, in that range and in no other. */
__attribute__((unused))
static void told(const char *name, const void *addr, size_t len,
                 uint32_t reason)
{
    bool pending = lapse_pending(sub), some = false, other = false;

    drain();
    for (int i = 0; i < event_count; i++) {
        bool is = events[i].addr == (uintptr_t)addr && events[i].len == len;

        some |= is && events[i].reason == reason;
        other |= !is && !(events[i].flags & LAPSE_EVENT_OVERFLOW);
        /* right, if the reader was kept from its work; not every time */
        if (events[i].flags & LAPSE_EVENT_OVERFLOW)
            some |= ++late < 4;
    }
    if (!check(pending && some && !other, "%s: told at once and exactly",
               name))
        for (int i = 0; i < event_count; i++)
            printf("  event %#lx+%#zx %s; wanted %p+%#zx\n", events[i].addr,
                   events[i].len, lapse_reason_name(events[i].reason), addr,
                   len);
    drain_all();
}

__attribute__((unused))
static void forget(char *p, size_t pages)
{
    lapse_unwatch(sub, p, pages * PAGE);
    munmap(p, pages * PAGE);
    drain_all();
}

/* Is the backstop on, and granted by the kernel? */
__attribute__((unused))
static bool covered(void)
{
    struct lapse_coverage rows[64];
    int n = lapse_coverage(rows, 64);

    for (int i = 0; i < n && i < 64; i++)
        if (!strcmp(rows[i].path, "inline system calls") &&
            rows[i].mechanism == LAPSE_KERNEL)
            return true;
    return false;
}

#endif
