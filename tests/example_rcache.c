/* SPDX-License-Identifier: BSD-3-Clause */
/* A backend of the registration cache, whole: for a device that pins memory
 * with mlock() and knows a registration by a number. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "rcache/lapse_rcache.h"

struct device {
    _Atomic unsigned keys, registered;
};

/* Region memory: whatever using and deregistering need. */
struct key {
    unsigned number;
};

static int register_region(void *addr, size_t len, unsigned access,
                           void *memory, void *arg)
{
    struct device *d = arg;
    struct key *k = memory;

    (void)access;
    if (mlock(addr, len)) /* -ENOMEM, -EAGAIN: evict, and ask again */
        return -errno;
    k->number = ++d->keys;
    d->registered++;
    return 0;
}

/* Its memory may be gone, and other memory there: use the key alone. */
static void deregister_region(void *addr, size_t len, void *memory, void *arg)
{
    struct device *d = arg;

    (void)memory;
    munlock(addr, len);
    d->registered--;
}

int main(void)
{
    struct device device = {0};
    struct lapse_rcache_ops ops = {.size = sizeof(ops),
                                   .region_bytes = sizeof(struct key),
                                   .register_region = register_region,
                                   .deregister_region = deregister_region,
                                   .arg = &device};
    lapse_rcache *cache;
    lapse_region *region;

    if (lapse_rcache_create(&ops, NULL, &cache))
        return 1;
    for (int i = 0; i < 3; i++) {
        char *p = malloc(1 << 20); /* mapped, and unmapped by free */

        for (int k = 0; k < 1000; k++) {
            if (lapse_rcache_get(cache, p, 1 << 20, LAPSE_RCACHE_READ, &region))
                return 1;
            /* ... let the device work with the key, and wait for it ... */
            lapse_rcache_put(cache, region);
        }
        free(p);
    }
    printf("3000 uses, %u registrations\n", device.keys);
    return lapse_rcache_destroy(cache) || device.registered || device.keys > 3;
}
