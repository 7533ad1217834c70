/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LAPSE_BACKSTOP=uffd and a madvise by an instruction of the program's own:
 * the kernel tells of it before it releases. A writes the round's number to
 * the last page of a range, releases the range and says when it is back. C
 * looks the page up all the time by the protocol of lapse.h; what it holds is
 * the number that it read. A hit of a number whose release was over before
 * the lookup began is stale.
 * Usage: api_backstop_madvise [--expect-stale] [ROUNDS]
 */
#include <pthread.h>
#include <sys/syscall.h>

#include "api.h"
#include "shim/sys.h"

#define PAGES 256ul /* long enough to meet the kernel at work */

static char *range, *last;
static _Atomic uint64_t released; /* the last round that is over */
static atomic_bool stop;
static atomic_ulong seen; /* the last round that C has hit */
static uint64_t rounds = 300;
static lapse_handle handle;
static uint64_t held; /* what the cache has; 0: nothing */
static unsigned long hits, stale;

static void *thread_a(void *unused)
{
    for (uint64_t i = 1; i <= rounds; i++) {
        uint64_t end = now_ns() + 100000000;

        for (unsigned long p = 0; p < PAGES; p++)
            range[p * PAGE + 64] = 1;
        __atomic_store_n((uint64_t *)last, i, __ATOMIC_RELEASE);
        /* C shall hold it; it may be told of the last round for long */
        while (atomic_load(&seen) < i && now_ns() < end)
            sleep_us(200);
        sys(SYS_madvise, range, PAGES * PAGE, MADV_DONTNEED);
        /* release: with the acquire in look_up */
        atomic_store_explicit(&released, i, memory_order_release);
    }
    atomic_store(&stop, true);
    return unused;
}

static bool drain(void)
{
    struct lapse_event e[16];
    bool hit = false;
    int n;

    do {
        n = lapse_poll(handle, e, 16);
        need(n >= 0, "lapse_poll");
        for (int i = 0; i < n; i++)
            hit |= event_overlaps(&e[i], last, PAGE);
    } while (n == 16);
    if (hit && held) {
        held = 0;
        lapse_unwatch(handle, last, PAGE);
    }
    return hit;
}

static void enter(void)
{
    uint64_t value = 0;

    lapse_watch(handle, last, PAGE);
    if (!pin_read(last, &value) || !value ||
        (lapse_pending(handle) && drain()))
        lapse_unwatch(handle, last, PAGE);
    else
        held = value;
}

static void look_up(void)
{
    uint64_t over = atomic_load_explicit(&released, memory_order_acquire);

    if (lapse_pending(handle))
        drain();
    if (!held) {
        enter();
        return;
    }
    hits++;
    atomic_store(&seen, held);
    if (held <= over) {
        stale++;
        held = 0;
        lapse_unwatch(handle, last, PAGE);
    }
}

int main(int argc, char **argv)
{
    bool expect = false;
    pthread_t a;

    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--expect-stale"))
            expect = true;
        else
            rounds = strtoul(argv[i], NULL, 10);
    setvbuf(stdout, NULL, _IOLBF, 0);
    range = fresh(PAGES * PAGE);
    last = range + (PAGES - 1) * PAGE;
    memset(last, 0, PAGE);
    handle = subscribe(LAPSE_POLL, 0, NULL, NULL);
    need(pthread_create(&a, NULL, thread_a, NULL) == 0, "pthread_create");
    while (!atomic_load(&stop))
        look_up();
    pthread_join(a, NULL);
    check(atomic_load(&seen) > rounds / 2, "the cache was hit: %lu", hits);
    check((stale > 0) == expect, "stale hits: %lu", stale);
    return api_end();
}
