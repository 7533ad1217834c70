/* SPDX-License-Identifier: BSD-3-Clause */
/* A backend, whole: the device is a pipe, which holds pages by reference. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>
#include "rcache/lapse_rcache.h"

struct device {
    _Atomic unsigned registrations, registered;
};

/* Its memory may be gone, and other memory there: use the key alone. */
static void deregister_region(void *addr, size_t len, void *memory, void *arg)
{
    int *key = memory;

    (void)addr, (void)len;
    close(key[0]);
    close(key[1]);
    ((struct device *)arg)->registered--;
}

/* The region's memory holds what using it and deregistering it need. */
static int register_region(void *addr, size_t len, unsigned access,
                           void *memory, void *arg)
{
    struct iovec pages = {addr, len};
    struct device *d = arg;
    int *key = memory;

    (void)access;
    if (pipe(key)) /* -EAGAIN: evict, and ask again */
        return errno == EMFILE ? -EAGAIN : -errno;
    d->registrations++;
    d->registered++;
    fcntl(key[1], F_SETPIPE_SZ, (int)len);
    if (vmsplice(key[1], &pages, 1, SPLICE_F_NONBLOCK) == (ssize_t)len)
        return 0;
    deregister_region(addr, len, memory, arg);
    return -EFAULT; /* not all is there, or larger than a pipe can be */
}

int main(void)
{
    struct device device = {0};
    struct lapse_rcache_ops ops = {.size = sizeof(ops),
                                   .region_bytes = sizeof(int[2]),
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
            free(p), p = malloc(1 << 18);
        if (lapse_rcache_get(cache, p, 1 << 18, LAPSE_RCACHE_READ, &region))
            return 1;
        /* ... let the device work with the key, and wait for it ... */
        lapse_rcache_put(cache, region);
    }
    printf("3000 uses, %u registrations\n", device.registrations);
    return lapse_rcache_destroy(cache) || device.registered;
}
