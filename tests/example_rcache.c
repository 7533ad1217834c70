/* SPDX-License-Identifier: BSD-3-Clause */
/* A backend, whole: for a device that pins memory with mlock(). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "rcache/lapse_rcache.h"

struct device {
    _Atomic unsigned keys, registered;
};

/* The region's memory holds what using it and deregistering it need. */
static int register_region(void *addr, size_t len, unsigned access,
                           void *memory, void *arg)
{
    struct device *d = arg;

    (void)access;
    if (mlock(addr, len)) /* -ENOMEM, -EAGAIN: evict, and ask again */
        return -errno;
    *(unsigned *)memory = ++d->keys;
    d->registered++;
    return 0;
}

/* Its memory may be gone, and other memory there: use the key alone. */
static void deregister_region(void *addr, size_t len, void *memory, void *arg)
{
    (void)memory;
    munlock(addr, len);
    ((struct device *)arg)->registered--;
}

int main(void)
{
    struct device device = {0};
    struct lapse_rcache_ops ops = {.size = sizeof(ops),
                                   .region_bytes = sizeof(unsigned),
                                   .register_region = register_region,
                                   .deregister_region = deregister_region,
                                   .arg = &device};
    lapse_rcache *cache;
    lapse_region *region;

    if (lapse_rcache_create(&ops, NULL, &cache))
        return 1;
    for (int i = 0; i < 3000; i++) {
        static char *p; /* mapped by malloc, and unmapped by free */

        if (i % 1000 == 0)
            free(p), p = malloc(1 << 20);
        if (lapse_rcache_get(cache, p, 1 << 20, LAPSE_RCACHE_READ, &region))
            return 1;
        /* ... let the device work with the key, and wait for it ... */
        lapse_rcache_put(cache, region);
    }
    printf("3000 uses, %u registrations\n", device.keys);
    return lapse_rcache_destroy(cache) || device.registered;
}
