/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Comes by each static probe, and prints what its arguments must be: for
 * tests/probes.sh. Without LAPSE_RECORDS=64 nothing overflows.
 */
#include <stdio.h>
#include <sys/mman.h>

#include "lapse.h"
#include "rcache/lapse_rcache.h"

#define PAGE 4096ul
#define PAGES 80

static int register_region(void *addr, size_t len, unsigned access,
                           void *memory, void *arg)
{
    (void)addr, (void)len, (void)access, (void)memory, (void)arg;
    return 0;
}

static void deregister_region(void *addr, size_t len, void *memory, void *arg)
{
    (void)addr, (void)len, (void)memory, (void)arg;
}

static void client_inline(const struct lapse_event *e, void *arg)
{
    (void)arg;
    printf("deliver 1 %lu %zu %u %lu %u\n", e->addr, e->len, e->reason,
           e->seq, e->flags);
}

static void cache_too(void *at)
{
    struct lapse_rcache_ops ops = {.size = sizeof(ops),
                                   .region_bytes = 8,
                                   .register_region = register_region,
                                   .deregister_region = deregister_region};
    struct lapse_rcache_limits limits = {.size = sizeof(limits),
                                         .max_regions = 1,
                                         .idle_ms = LAPSE_RCACHE_NO_TICK};
    lapse_rcache *cache;
    lapse_region *r[3] = {NULL};

    if (lapse_rcache_create(&ops, &limits, &cache))
        return;
    for (int i = 0; i < 3; i++) { /* made, found, and found again */
        lapse_rcache_get(cache, (char *)at + 64, 100, LAPSE_RCACHE_READ,
                         &r[i]);
        lapse_rcache_put(cache, r[i]);
    }
    printf("miss %lu %lu 100\n", (uintptr_t)cache, (uintptr_t)at + 64);
    for (int i = 1; i < 3; i++)
        printf("hit %lu %lu 100 %lu\n", (uintptr_t)cache, (uintptr_t)at + 64,
               (uintptr_t)r[i]);
    printf("evict %lu %lu\n", (uintptr_t)cache, (uintptr_t)r[0]);
    lapse_rcache_get(cache, (char *)at + 8 * PAGE, 100, LAPSE_RCACHE_READ,
                     &r[0]);
    printf("miss %lu %lu 100\n", (uintptr_t)cache, (uintptr_t)at + 8 * PAGE);
    lapse_rcache_put(cache, r[0]);
    lapse_rcache_destroy(cache);
}

int main(void)
{
    struct lapse_subscription how = {.size = sizeof(how)};
    struct lapse_event e;
    lapse_handle polled, inlined;
    char *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    setvbuf(stdout, NULL, _IONBF, 0);
    if (lapse_subscribe(&how, &polled))
        return 1;
    how.delivery = LAPSE_INLINE;
    how.callback = client_inline;
    if (lapse_subscribe(&how, &inlined))
        return 1;
    lapse_watch(polled, p + 5, PAGES * PAGE - 5);
    printf("watch 0 %lu %lu\n", (uintptr_t)p + 5, PAGES * PAGE - 5);
    lapse_watch(inlined, p, PAGE);
    printf("watch 1 %lu %lu\n", (uintptr_t)p, PAGE);
    madvise(p, 2 * PAGE, MADV_DONTNEED);
    while (lapse_poll(polled, &e, 1) == 1) {
        printf("publish 0 %lu %zu %u %lu\n", e.addr, e.len, e.reason, e.seq);
        printf("deliver 0 %lu %zu %u %lu %u\n", e.addr, e.len, e.reason,
               e.seq, e.flags);
    }
    lapse_unwatch(inlined, p, PAGE);
    printf("unwatch 1 %lu %lu\n", (uintptr_t)p, PAGE);
    lapse_unsubscribe(inlined);
    for (int i = 0; i < PAGES; i++)
        madvise(p + i * PAGE, PAGE, MADV_DONTNEED);
    puts("overflow 0");
    lapse_unsubscribe(polled);
    cache_too(p);
    return 0;
}
