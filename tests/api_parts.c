/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * E1: a part of a registration goes while the rest is in use: everybody who
 * watches it is told that part, and later the rest. F1: a program that
 * releases for long and never asks keeps the library within bounds, and what
 * was watched is told in time while it sleeps.
 * Usage: api_parts [RELEASES]
 */
#include <malloc.h>
#include <sys/poll.h> /* not shim/poll.h */

#include "api.h"

#define EVENTS 256
#define MIB (1ul << 20)
#define BOUND (16 * MIB)
#define PROMPT_MS 1000 /* told within this, without any call of the program */

static struct lapse_event events[EVENTS];
static int event_count;

static void drain(lapse_handle s)
{
    int n;

    event_count = 0;
    do {
        n = lapse_poll(s, events + event_count, 16);
        need(n >= 0, "lapse_poll");
        event_count += n;
    } while ((n == 16 || lapse_pending(s)) && event_count < EVENTS - 16);
}

/* Exactly one range, told as often as it likes. */
static bool told_only(lapse_handle s, const char *addr, size_t len)
{
    drain(s);
    for (int i = 0; i < event_count; i++)
        if (events[i].addr != (uintptr_t)addr || events[i].len != len)
            return false;
    return event_count > 0;
}

static void test_parts(void)
{
    lapse_handle whole = subscribe(LAPSE_POLL, 0, NULL, NULL);
    lapse_handle window = subscribe(LAPSE_POLL, 0, NULL, NULL);
    char *p = fresh(4 * MIB), *in = p + MIB + 3 * PAGE;

    need(lapse_watch(whole, p, 4 * MIB) == 0, "watch");
    need(lapse_watch(window, p + MIB, 65536) == 0, "watch");

    madvise(in, PAGE, MADV_DONTNEED);
    check(told_only(whole, in, PAGE), "E1: the whole is told one page");
    check(told_only(window, in, PAGE), "E1: the window is told that page");
    check(p[0] == 0x5a && in[-1] == 0x5a && in[PAGE] == 0x5a && in[0] == 0,
          "E1: the rest is in use");

    munmap(p + 3 * MIB, MIB);
    check(told_only(whole, p + 3 * MIB, MIB), "E1: the whole is told the tail");
    drain(window);
    check(event_count == 0, "E1: the window is not");

    munmap(p, 3 * MIB);
    check(told_only(whole, p, 3 * MIB), "E1: the whole is told the rest");
    check(told_only(window, p, 3 * MIB), "E1: so is the window");
    check(lapse_unwatch(window, p + MIB, 65536) == 0 &&
              lapse_unwatch(whole, p, 4 * MIB) == 0,
          "E1: watches are counted on, whatever went");
    check(lapse_unsubscribe(whole) == 0 && lapse_unsubscribe(window) == 0,
          "E1: unsubscribed");
}

static size_t resident(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long size, rss = 0;

    need(f && fscanf(f, "%lu %lu", &size, &rss) == 2, "statm");
    fclose(f);
    return rss * PAGE;
}

static atomic_ulong told_bytes;

static void on_event(const struct lapse_event *e, void *arg)
{
    (void)arg;
    if (!(e->flags & LAPSE_EVENT_OPEN)) /* once per release */
        atomic_fetch_add(&told_bytes, e->len);
}

static void releases(long n)
{
    for (long i = 0; i < n; i++) {
        size_t len = 256 * 1024 + (size_t)i % 64 * PAGE;
        char *p = SANITIZED ? mmap(NULL, len, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                            : malloc(len);

        p[0] = 1;
        KEEP(p);
        if (SANITIZED)
            munmap(p, len);
        else
            free(p);
    }
}

static void test_bounds(long n)
{
    lapse_handle cb = subscribe(LAPSE_CALLBACK, 0, on_event, NULL);
    lapse_handle all = subscribe(LAPSE_POLL, LAPSE_ALL, NULL, NULL);
    struct lapse_stats st = {.size = sizeof st};
    char *block[64];
    size_t before, after;
    uint64_t start;

    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* every free is a munmap */
    for (int i = 0; i < 64; i++) {
        block[i] = fresh(MIB);
        need(lapse_watch(cb, block[i], MIB) == 0, "watch");
    }
    releases(100);
    before = resident();
    releases(n);
    after = resident();
    check(after < before + BOUND, "F1: %ld releases, memory grew by %ld KiB",
          n, ((long)after - (long)before) / 1024);
    lapse_stats(&st);
    check(st.watch_bytes < BOUND && st.pool_high <= st.pool_size,
          "F1: watches take %lu KiB, records %lu of %lu",
          (unsigned long)st.watch_bytes / 1024, (unsigned long)st.pool_high,
          (unsigned long)st.pool_size);
    check(atomic_load(&told_bytes) == 0, "F1: nothing that nobody watches");

    /* Who never asked hears that everything may be gone, not nothing. */
    drain(all);
    check(event_count > 0 && (events[0].flags & LAPSE_EVENT_OVERFLOW) &&
              events[0].addr == 0 && events[0].len == SIZE_MAX,
          "F1: OVERFLOW for who never polled");
    drain(all);

    for (int i = 0; i < 64; i++)
        munmap(block[i], MIB);
    start = now_ns();
    /* The program sleeps; in slices, to see when it was told. */
    while (atomic_load(&told_bytes) < 64 * MIB &&
           now_ns() - start < 5000000000u)
        poll(NULL, 0, 10);
    check(atomic_load(&told_bytes) >= 64 * MIB &&
              now_ns() - start < PROMPT_MS * 1000000ul,
          "F1: told in %lu ms while the program slept",
          (unsigned long)((now_ns() - start) / 1000000));
    check(lapse_unsubscribe(cb) == 0 && lapse_unsubscribe(all) == 0,
          "F1: unsubscribed");
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(120);
    test_parts();
    test_bounds(argc > 1 ? atol(argv[1]) : 200000);
    return api_end();
}
