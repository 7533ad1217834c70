/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * D1: map at the same hint, fill, register, write, unmap; round after round
 * the device must see this round's data. Then with a thread that keeps
 * mapping, and so often gets the address first.
 * Usage: case_d1 [--expect-fault] [--callback] [ROUNDS]
 */
#include <pthread.h>
#include <sched.h>

#include "case.h"
#include "case_uring.h"

#define LEN (4 * PAGE)
#define KEEP_MAPPED 8

static void *hint;
static atomic_bool stop;
static atomic_ulong stolen, mapped;

/* Holds a few mappings, gives the oldest back. */
static void *maps(void *unused)
{
    char *ring[KEEP_MAPPED] = {NULL};

    for (unsigned i = 0; !atomic_load(&stop); i++) {
        char **slot = &ring[i % KEEP_MAPPED];

        if (*slot)
            munmap(*slot, LEN);
        *slot = mmap(hint, LEN, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        need(*slot != MAP_FAILED, "mmap");
        (*slot)[0] = 't';
        atomic_fetch_add(&stolen, *slot == hint);
        atomic_fetch_add(&mapped, 1);
        sched_yield();
    }
    for (int i = 0; i < KEEP_MAPPED; i++)
        if (ring[i])
            munmap(ring[i], LEN);
    return unused;
}

static void rounds(unsigned n, const char *what)
{
    unsigned bad = 0, elsewhere = 0;

    for (unsigned i = 1; i <= n; i++) {
        unsigned *p = mmap(hint, LEN, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        need(p != MAP_FAILED, "mmap");
        if (!hint)
            hint = p;
        elsewhere += p != hint;
        for (size_t at = 0; at < LEN / sizeof *p; at++)
            p[at] = i;
        bad += cache_stale(p, LEN) != 0;
        munmap(p, LEN);
    }
    must(bad == 0,
         "D1 %s: %u of %u rounds wrote old data; %u at another "
         "address",
         what, bad, n, elsewhere);
}

int main(int argc, char **argv)
{
    uint32_t delivery = LAPSE_POLL;
    pthread_t thread;
    unsigned n = 1000;

    (void)argc;
    argv = case_begin_preloaded(argv);
    if (argv[1] && !strcmp(argv[1], "--callback")) {
        delivery = LAPSE_CALLBACK;
        argv++;
    }
    if (argv[1])
        n = (unsigned)atoi(argv[1]);
    cache_start(delivery);
    rounds(n, "alone");
    pthread_create(&thread, NULL, maps, NULL);
    while (!atomic_load(&mapped))
        sched_yield();
    rounds(n, "with a thread that maps");
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    check(atomic_load(&stolen) > 0, "D1: the thread got the address %lu times",
          atomic_load(&stolen));
    printf("lookups: %lu hits, %lu misses\n", cache_hits, cache_misses);
    cache_stop();
    return api_end();
}
