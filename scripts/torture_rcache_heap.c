/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of malloc, and of the break where no malloc has it. */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "torture.h"
#include "torture_rcache_blocks.h"

static pthread_mutex_t break_lock = PTHREAD_MUTEX_INITIALIZER;
static int (*jemalloc)(const char *, void *, size_t *, void *, size_t);

/* False: there is no jemalloc. */
bool heap_start(void)
{
    jemalloc = (int (*)(const char *, void *, size_t *, void *, size_t))dlsym(
        RTLD_DEFAULT, "mallctl");
    return jemalloc;
}

/* glibc's malloc takes what it finds at the break for its own; others do not
   use it, or only when there are no mappings left. */
static bool has_break(void)
{
    return TORTURE_OWN_MALLOC || jemalloc;
}

/* From an arena. */
char *make_small(struct block *b, uint64_t r)
{
    b->len = 3000 + r % 90000;
    return malloc(b->len);
}

/* A mapping of its own, in glibc, or from an arena. */
char *make_large(struct block *b, uint64_t r)
{
    (void)r;
    return malloc(b->len);
}

char *make_aligned(struct block *b, uint64_t r)
{
    void *p;

    (void)r;
    return posix_memalign(&p, PAGE, b->len) ? NULL : p;
}

static void trim(void)
{
    if (jemalloc)
        jemalloc("arena.4096.purge", NULL, NULL, NULL, 0); /* of all */
    else
        malloc_trim(0);
}

enum rcache_way release_heap(struct block *b, unsigned way)
{
    free(b->p);
    if (way % 4)
        return block_gone(b, WAY_FREE);
    trim();
    return block_gone(b, WAY_FREE_TRIM);
}

enum rcache_way release_array(struct block *b, unsigned way)
{
    size_t len = b->len > 8 * PAGE ? b->len / 2 : b->len * 4;
    char *p;

    if (way % 2 == 0)
        return release_heap(b, way / 2);
    p = realloc(b->p, len);
    if (p) {
        b->p = p;
        b->len = len;
    }
    return WAY_REALLOC;
}

/* One at a time has the break, up to its release. */
char *make_break(struct block *b, uint64_t r)
{
    uintptr_t now;

    (void)r;
    if (!has_break() || pthread_mutex_trylock(&break_lock))
        return NULL;
    now = (uintptr_t)sbrk(0);
    b->handle = sbrk((intptr_t)(b->len + -now % PAGE));
    if (b->handle == (void *)-1) {
        pthread_mutex_unlock(&break_lock);
        return NULL;
    }
    return (char *)(now + -now % PAGE);
}

enum rcache_way release_break(struct block *b, unsigned way)
{
    (void)way;
    if (brk(b->handle))
        rcache_trouble("brk", -errno);
    block_gone(b, WAY_BRK);
    pthread_mutex_unlock(&break_lock);
    return WAY_BRK;
}

/* What glibc gave back of its heap. */
void heap_finish(void)
{
    struct lapse_stats s = {.size = sizeof(s)};

    if (!has_break() && !lapse_stats(&s))
        way_fired(WAY_BRK, s.path[LAPSE_PATH_BRK].releases);
}
