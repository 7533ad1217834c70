/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that comes and goes with a library: its .bss, and what the malloc of
   a second libc, in a namespace of dlmopen, has. */
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include "lib_torture.h"
#include "torture.h"
#include "torture_rcache_blocks.h"

static const char *path;
/* One thread at a time has the library, up to its release. */
static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
/* Blocks hold it for reading, who closes it for writing. */
static pthread_rwlock_t namespace_lock = PTHREAD_RWLOCK_INITIALIZER;
static const struct torture_library *namespace_library;
static void *namespace_handle;
static time_t namespace_since;

void loaded_start(const char *library)
{
    path = library;
}

static const struct torture_library *look_up(void *handle)
{
    const struct torture_library *l =
        handle ? dlsym(handle, "torture_library") : NULL;

    if (!l)
        rcache_trouble(dlerror(), 0);
    return l;
}

/* ASan refuses RTLD_DEEPBIND. */
char *make_library(struct block *b, uint64_t r)
{
    int deep = r % 2 && !TORTURE_OWN_MALLOC ? RTLD_DEEPBIND : 0;
    const struct torture_library *l;

    if (pthread_mutex_trylock(&library_lock))
        return NULL;
    b->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | deep);
    b->deep = deep;
    b->len = TORTURE_LIBRARY_BYTES;
    l = look_up(b->handle);
    return l ? l->memory : NULL;
}

enum rcache_way release_library(struct block *b, unsigned way)
{
    if (way % 2 && b->deep) {
        look_up(b->handle)->drop(b->p, b->len);
        return WAY_DEEPBIND;
    }
    dlclose(b->handle);
    block_gone(b, WAY_DLCLOSE);
    pthread_mutex_unlock(&library_lock);
    return WAY_DLCLOSE;
}

static time_t seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return t.tv_sec;
}

/* With the lock for writing. What is left to its malloc is lost with it, so
   that should be little, and it should not be often. */
static void namespace_reopen(void)
{
    if (namespace_handle) {
        namespace_library->trim(0);
        dlclose(namespace_handle);
        way_fired(WAY_NAMESPACE_CLOSE, 1);
    }
    namespace_handle = dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL);
    namespace_library = look_up(namespace_handle);
    namespace_since = seconds();
}

char *make_namespace(struct block *b, uint64_t r)
{
    char *p;

    if (!way_open(WAY_NAMESPACE_FREE))
        return NULL;
    if (seconds() - namespace_since > 1 &&
        !pthread_rwlock_trywrlock(&namespace_lock)) {
        namespace_reopen();
        pthread_rwlock_unlock(&namespace_lock);
    }
    if (pthread_rwlock_tryrdlock(&namespace_lock))
        return NULL;
    b->len = 3000 + r % 200000;
    p = namespace_library ? namespace_library->get(b->len) : NULL;
    if (!p)
        pthread_rwlock_unlock(&namespace_lock);
    return p;
}

enum rcache_way release_namespace(struct block *b, unsigned way)
{
    namespace_library->give(b->p);
    if (way % 8 == 0)
        namespace_library->trim(0);
    block_gone(b, WAY_NAMESPACE_FREE);
    pthread_rwlock_unlock(&namespace_lock);
    return WAY_NAMESPACE_FREE;
}
