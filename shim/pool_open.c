/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of pool.h that no hook runs: making and remaking a pool. */
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "pool.h"
#include "sys.h"

static void link_free(struct pool *p)
{
    uint32_t next = 0;

    for (uint32_t i = p->size; i > 0; i--) {
        struct record *r = pool_at(p, i);

        if (r->taken)
            continue;
        atomic_store_explicit(&r->next, next, memory_order_relaxed);
        next = i;
    }
    /* release: the links, for whoever takes */
    atomic_store_explicit(&p->head,
                          atomic_load_explicit(&p->head,
                                               memory_order_relaxed) >>
                                  32 << 32 |
                              next,
                          memory_order_release);
}

int pool_open(struct pool *p, uint32_t size)
{
    long at;

    if (p->record)
        return 0;
    /* Populated: a hook shall not be the first to touch a page. */
    at = sys(SYS_mmap, 0, size * sizeof(struct record),
             PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at < 0 && at > -4096)
        return -ENOMEM;
    p->record = (struct record *)at;
    p->size = size;
    link_free(p);
    return 0;
}

void pool_rebuild(struct pool *p)
{
    link_free(p);
}
