/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preloaded behind liblapse: every thread of the library that there can be.
 * One that calls back, two caches that tick, and with LAPSE_BACKSTOP=uffd the
 * reader. LIB_THREADS=N: so many they must be; 3 if it is not said.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../rcache/lapse_rcache.h"
#include "../../shim/lapse.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Allocates under a lock, as what is told inside a release must not. */
static void gone(const struct lapse_event *event, void *arg)
{
    (void)event;
    (void)arg;
    pthread_mutex_lock(&lock);
    free(malloc(200000));
    pthread_mutex_unlock(&lock);
}

static int enter(void *addr, size_t len, unsigned access, void *memory,
                 void *arg)
{
    (void)addr;
    (void)len;
    (void)access;
    (void)memory;
    (void)arg;
    return 0;
}

static void leave(void *addr, size_t len, void *memory, void *arg)
{
    enter(addr, len, 0, memory, arg);
}

/* One whose thread sleeps, and one, with a region, whose thread ticks. */
static void make_cache(int with_region)
{
    static char buffer[8192];
    struct lapse_rcache_ops ops = {.size = sizeof ops,
                                   .region_bytes = 16,
                                   .register_region = enter,
                                   .deregister_region = leave};
    struct lapse_rcache_limits limits = {.size = sizeof limits, .idle_ms = 2};
    lapse_rcache *cache;
    lapse_region *region;

    if (lapse_rcache_create(&ops, &limits, &cache) ||
        (with_region && lapse_rcache_get(cache, buffer, sizeof buffer,
                                         LAPSE_RCACHE_READ, &region)))
        abort();
}

static int threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int n = 0;

    while (tasks && (entry = readdir(tasks)))
        n += entry->d_name[0] != '.';
    closedir(tasks);
    return n;
}

__attribute__((constructor)) static void begin(void)
{
    const char *are = getenv("LIB_THREADS");
    struct lapse_subscription how = {.size = sizeof how,
                                     .delivery = LAPSE_CALLBACK,
                                     .flags = LAPSE_ALL | LAPSE_FORK_KEEP,
                                     .callback = gone};
    lapse_handle s;

    if (lapse_subscribe(&how, &s))
        abort();
    make_cache(0);
    make_cache(1);
    if (threads() != 1 + (are ? atoi(are) : 3))
        abort();
}
