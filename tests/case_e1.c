/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * E1: a part of a registration goes while the rest is in use: everybody who
 * watches it is told that part, no more, and later the rest. The control
 * watches nothing.
 * Usage: case_e1 [--expect-fault]
 */
#include "case.h"

#define EVENTS 256
#define MIB (1ul << 20)
#define WINDOW 65536ul

static struct lapse_event events[EVENTS];
static int event_count;

/* Both are in use all the time: lapsed is not yet given back. */
static struct registration {
    lapse_handle s;
    char *addr;
    size_t len;
    unsigned uses;
    bool lapsed;
} whole, window;

static void enter(struct registration *r, char *addr, size_t len)
{
    *r = (struct registration){.addr = addr, .len = len, .uses = 1};
    r->s = subscribe(LAPSE_POLL, 0, NULL, NULL);
    if (!expect_fault)
        need(lapse_watch(r->s, addr, len) == 0, "watch");
}

static void drain(struct registration *r)
{
    int n;

    event_count = 0;
    do {
        n = lapse_poll(r->s, events + event_count, 16);
        need(n >= 0, "lapse_poll");
        event_count += n;
    } while ((n == 16 || lapse_pending(r->s)) && event_count < EVENTS - 16);
    for (int i = 0; i < event_count; i++)
        r->lapsed |= event_overlaps(&events[i], r->addr, r->len);
}

/* Exactly one range, told as often as it likes. */
static bool told_only(struct registration *r, const char *addr, size_t len)
{
    drain(r);
    for (int i = 0; i < event_count; i++)
        if (events[i].addr != (uintptr_t)addr || events[i].len != len)
            return false;
    return event_count > 0;
}

static void leave(struct registration *r, const char *name)
{
    bool used = r->uses-- == 1;

    must(used && r->lapsed, "E1: the %s lapsed in use", name);
    check(lapse_unwatch(r->s, r->addr, r->len) == (expect_fault ? -ENOENT : 0),
          "E1: the %s is watched on, whatever went", name);
    check(lapse_unsubscribe(r->s) == 0, "E1: unsubscribed");
}

static void test_parts(void)
{
    char *p = fresh(4 * MIB), *in = p + MIB + 3 * PAGE;

    enter(&whole, p, 4 * MIB);
    enter(&window, p + MIB, WINDOW);

    madvise(in, PAGE, MADV_DONTNEED);
    must(told_only(&whole, in, PAGE), "E1: the whole is told one page");
    must(told_only(&window, in, PAGE), "E1: the window is told that page");
    check(p[0] == 0x5a && in[-1] == 0x5a && in[PAGE] == 0x5a && in[0] == 0,
          "E1: the rest is there, and in use");

    munmap(p + 3 * MIB, MIB);
    must(told_only(&whole, p + 3 * MIB, MIB), "E1: the whole is told the tail");
    drain(&window);
    check(event_count == 0, "E1: the window is not");

    munmap(p, 3 * MIB);
    must(told_only(&whole, p, 3 * MIB), "E1: the whole is told the rest");
    must(told_only(&window, p, 3 * MIB), "E1: so is the window");
    leave(&whole, "whole");
    leave(&window, "window");
}

int main(int argc, char **argv)
{
    (void)argc;
    case_begin(argv);
    test_parts();
    return api_end();
}
