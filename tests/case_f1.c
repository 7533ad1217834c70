/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * F1: a program that frees for long and never asks. The library stays within
 * bounds, and what was registered is unpinned in time, while the program is
 * busy and while it sleeps in poll(). S-uring with 64 buffers of 1 MiB, which
 * unregisters in its callback; what the kernel holds pinned is VmPin. With
 * --expect-fault the cache looks only when it is used, as those did.
 * Usage: case_f1 [--expect-fault] [RELEASES]
 */
#include <malloc.h>
#include <sys/poll.h> /* not shim/poll.h */

#include "case.h"
#include "case_uring.h"

#define MIB (1ul << 20)
#define BOUND (16 * MIB)
#define PROMPT_MS 1000 /* told within this, without any call of the program */
#define BLOCKS 64

static size_t resident(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long size, rss = 0;

    need(f && fscanf(f, "%lu %lu", &size, &rss) == 2, "statm");
    fclose(f);
    return rss * PAGE;
}

/* What the kernel holds pinned for this process. */
static size_t pinned(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    unsigned long kib = 0;
    char line[128];

    need(f != NULL, "/proc/self/status");
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "VmPin: %lu", &kib) == 1)
            break;
    fclose(f);
    return kib * 1024;
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

/* Milliseconds until no more than that is pinned; the program sleeps. */
static unsigned long wait_pinned(size_t most)
{
    uint64_t start = now_ns();

    while (pinned() > most && now_ns() - start < 3 * PROMPT_MS * 1000000ul)
        poll(NULL, 0, 10);
    return (unsigned long)((now_ns() - start) / 1000000);
}

static void test_bounds(long n)
{
    lapse_handle all = subscribe(LAPSE_POLL, LAPSE_ALL, NULL, NULL);
    struct lapse_stats st = {.size = sizeof st};
    struct lapse_event event;
    char *block[BLOCKS];
    size_t before, after;
    unsigned long ms;

    for (int i = 0; i < BLOCKS; i++) {
        block[i] = fresh(MIB);
        cache_lookup(block[i], MIB);
    }
    check(pinned() >= BLOCKS * MIB, "F1: %zu MiB pinned", pinned() / MIB);
    for (int i = 0; i < BLOCKS / 2; i++)
        munmap(block[i], MIB);
    releases(100);
    before = resident();
    releases(n);
    must(pinned() <= BLOCKS / 2 * MIB,
         "F1: %zu MiB pinned after half of it "
         "was given back",
         pinned() / MIB);
    after = resident();
    check(after < before + BOUND, "F1: %ld releases, memory grew by %ld KiB", n,
          ((long)after - (long)before) / 1024);
    lapse_stats(&st);
    check(st.watch_bytes < BOUND && st.pool_high <= st.pool_size,
          "F1: watches take %lu KiB, records %lu of %lu",
          (unsigned long)st.watch_bytes / 1024, (unsigned long)st.pool_high,
          (unsigned long)st.pool_size);

    /* Who never asked hears that everything may be gone, not nothing. */
    check(lapse_poll(all, &event, 1) == 1 &&
              (event.flags & LAPSE_EVENT_OVERFLOW) && event.addr == 0 &&
              event.len == SIZE_MAX,
          "F1: OVERFLOW for who never polled, in %ld releases", n);
    check(lapse_unsubscribe(all) == 0, "F1: unsubscribed");

    /* An overflow may have taken more than was given back. */
    for (int i = BLOCKS / 2; i < BLOCKS; i++)
        cache_lookup(block[i], MIB);
    check(pinned() >= BLOCKS / 2 * MIB, "F1: %zu MiB pinned", pinned() / MIB);
    for (int i = BLOCKS / 2; i < BLOCKS; i++)
        munmap(block[i], MIB);
    ms = wait_pinned(0);
    must(pinned() == 0 && ms < PROMPT_MS,
         "F1: asleep in poll(): %zu MiB "
         "pinned after %lu ms",
         pinned() / MIB, ms);
}

int main(int argc, char **argv)
{
    long n;

    (void)argc;
    argv = case_begin(argv);
    n = argv[1] ? atol(argv[1]) : 200000;
    alarm(60 + (unsigned)(n / 20000));    /* it is long, not hung */
    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* every free is a munmap */
    cache_start(expect_fault ? LAPSE_POLL : LAPSE_CALLBACK);
    cache_unpin_at_once(!expect_fault);
    test_bounds(n);
    cache_stop();
    return api_end();
}
