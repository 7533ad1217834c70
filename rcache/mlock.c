/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registrar: mlock(). The kernel does not count locks of a page, so that
 * regions that overlap are known here: a list, linked through the regions'
 * own memory. To deregister looks at all of it.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#include "lapse_rcache_backends.h"
#include "pieces.h"

#define PAGE ((uintptr_t)4096)

struct locked {
    struct locked *next, **at;
    uintptr_t start, end;
};

struct locks {
    pthread_mutex_t lock;
    struct locked *first;
};

/* munlock() stops at a page that is not mapped: halve until none is left out.
 * What was unmapped altogether costs two calls a page. */
static void unlock_mapped(uintptr_t start, uintptr_t end)
{
    uintptr_t middle = start + (end - start) / 2 / PAGE * PAGE;

    if (!munlock((void *)start, end - start) || end - start <= PAGE)
        return;
    unlock_mapped(start, middle);
    unlock_mapped(middle, end);
}

/* Unlock what no region has, of [start, end). */
static void unlock(struct locks *all, uintptr_t start, uintptr_t end)
{
    while (start < end) {
        uintptr_t stop = end; /* of a stretch that nobody has */
        uintptr_t skip = start;

        for (struct locked *l = all->first; l; l = l->next) {
            if (l->start <= start && l->end > skip)
                skip = l->end;
            if (l->start > start && l->start < stop)
                stop = l->start;
        }
        if (skip > start) {
            start = skip;
            continue;
        }
        unlock_mapped(start, stop);
        start = stop;
    }
}

/* Else not all is mapped, or there is a page that cannot be had (behind the
 * end of its file, PROT_NONE), and it is of no use to evict: mlock() does not
 * say which. msync() does nothing, but would not to what is not mapped; to lock
 * what is there already, and no more, the limit is all that it needs. */
static bool limit_reached(void *addr, size_t len)
{
    return !msync(addr, len, MS_ASYNC) && mlock2(addr, len, MLOCK_ONFAULT);
}

static int mlock_register(void *addr, size_t len, unsigned access,
                          void *memory, void *arg)
{
    struct locks *all = arg;
    struct locked *l = memory;
    int kept = errno, err = 0;

    (void)access;
    pthread_mutex_lock(&all->lock);
    if (mlock(addr, len)) {
        err = -errno;
        if (err == -ENOMEM && !limit_reached(addr, len))
            err = -EFAULT;
        unlock(all, (uintptr_t)addr, (uintptr_t)addr + len); /* the part */
    }
    if (!err) {
        l->start = (uintptr_t)addr;
        l->end = l->start + len;
        l->next = all->first;
        l->at = &all->first;
        if (l->next)
            l->next->at = &l->next;
        all->first = l;
    }
    pthread_mutex_unlock(&all->lock);
    errno = kept;
    return err;
}

static void mlock_deregister(void *addr, size_t len, void *memory, void *arg)
{
    struct locks *all = arg;
    struct locked *l = memory;
    int kept = errno;

    pthread_mutex_lock(&all->lock);
    *l->at = l->next;
    if (l->next)
        l->next->at = l->at;
    unlock(all, (uintptr_t)addr, (uintptr_t)addr + len);
    pthread_mutex_unlock(&all->lock);
    errno = kept;
}

int lapse_rcache_mlock_open(struct lapse_rcache_ops *ops)
{
    struct locks *all = ops ? pieces_map(sizeof(*all)) : NULL;

    if (!all)
        return ops ? -ENOMEM : -EINVAL;
    pthread_mutex_init(&all->lock, NULL);
    *ops = (struct lapse_rcache_ops){.size = sizeof(*ops),
                                     .region_bytes = sizeof(struct locked),
                                     .register_region = mlock_register,
                                     .deregister_region = mlock_deregister,
                                     .arg = all};
    return 0;
}

void lapse_rcache_mlock_close(struct lapse_rcache_ops *ops)
{
    struct locks *all = ops->arg;

    pthread_mutex_destroy(&all->lock);
    pieces_unmap(all, sizeof(*all));
    ops->arg = NULL;
}
