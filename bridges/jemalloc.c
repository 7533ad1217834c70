/* SPDX-License-Identifier: BSD-3-Clause */
/* The bridge to jemalloc: puts the hooks of extent.c before those of every
 * arena. Finds mallctl() by its name: nothing is linked with jemalloc. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "bridges/extent.h"
#include "bridges/lapse_jemalloc.h"

static int (*mallctl)(const char *, void *, size_t *, void *, size_t);
static pthread_mutex_t installing = PTHREAD_MUTEX_INITIALIZER;
static unsigned used;              /* adapters; under `installing` */
static _Atomic uint64_t installed; /* relaxed: a counter */

/* An adapter is never put before other hooks than it was made for: those may
 * call it, having come after it. NULL: no more. */
static struct adapter *adapter_for(struct hooks *there, unsigned arena)
{
    struct adapter *a = extent_adapters;

    while (a < extent_adapters + used &&
           (a->before != there || a->arena != arena))
        a++;
    if (a == extent_adapters + used) {
        if (used == KEPT_OWNERS)
            return NULL;
        used++;
        extent_adapt(a, there, arena);
    }
    return a;
}

static int install_one(unsigned i)
{
    struct adapter *a;
    struct hooks *there;
    size_t len = sizeof(there);
    char name[48];
    int err;

    snprintf(name, sizeof(name), "arena.%u.extent_hooks", i);
    err = mallctl(name, &there, &len, NULL, 0);
    if (err == EFAULT) /* destroyed, or not there yet */
        return 0;
    if (err)
        return err == ENOENT ? -ENOTSUP : -err;
    if (extent_adapted(there))
        return 0;
    a = adapter_for(there, i);
    if (!a)
        return -ENOSPC;
    atomic_fetch_add_explicit(&installed, 1, memory_order_relaxed);
    return -mallctl(name, NULL, NULL, &a, sizeof(a));
}

/* The arena of the largest blocks is made with the first of those. */
static void make_oversize_arena(void)
{
    size_t size = 0, len = sizeof(size);
    void *p;

    if (mallctl("opt.oversize_threshold", &size, &len, NULL, 0) || !size ||
        size >= PTRDIFF_MAX)
        return;
    p = malloc(size);
    __asm__ volatile("" : "+r"(p) : : "memory"); /* is not optimised out */
    free(p);
}

int lapse_jemalloc_install(void)
{
    unsigned n = 0;
    size_t len = sizeof(n);
    int saved = errno, err = -ENOTSUP;

    pthread_mutex_lock(&installing);
    if (!mallctl)
        *(void **)&mallctl = dlsym(RTLD_DEFAULT, "mallctl");
    if (!mallctl)
        dlerror(); /* the program's next one is not about this */
    if (mallctl && !mallctl("arenas.narenas", &n, &len, NULL, 0)) {
        make_oversize_arena();
        err = 0;
    }
    for (unsigned i = 0; i < n && !err; i++)
        err = install_one(i);
    pthread_mutex_unlock(&installing);
    errno = saved;
    return err;
}

ssize_t lapse_jemalloc_purge(void)
{
    int saved = errno;
    size_t bytes = extent_purge();

    errno = saved;
    return (ssize_t)bytes;
}

int lapse_jemalloc_stats(struct lapse_jemalloc_stats *out)
{
    struct kept_sum sum;

    if (!out || out->size != sizeof(*out))
        return -EINVAL;
    kept_sum(&sum);
    *out = (struct lapse_jemalloc_stats){
        .size = sizeof(*out),
        .installed = atomic_load_explicit(&installed, memory_order_relaxed),
        .refused = atomic_load_explicit(&extents_refused, memory_order_relaxed),
        .unkept = atomic_load_explicit(&extents_unkept, memory_order_relaxed),
        .kept_ranges = sum.ranges,
        .kept_bytes = sum.bytes,
    };
    return 0;
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&installing);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&installing);
}

static void fork_child(void)
{
    pthread_mutex_unlock(&installing);
    kept_fork_child();
}

__attribute__((constructor)) static void start(void)
{
    if (lapse_jemalloc_install() == 0)
        pthread_atfork(fork_prepare, fork_parent, fork_child);
}
