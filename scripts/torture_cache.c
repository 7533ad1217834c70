/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The toy cache of scripts/torture, made as the caches were that hung: it
 * calls malloc and free with its lock held, and so does its handler.
 */
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include "torture_child.h"

#define ENTRIES 256

struct entry {
    void *block;
    size_t len;
    bool watched;
};

static pthread_mutex_t cache_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct entry cache[ENTRIES]; /* guarded by cache_mutex */
static __thread bool in_handler;

static void cache_lock(void)
{
    pthread_mutex_lock(&cache_mutex);
    atomic_store_explicit(&child.board->owner, gettid(), memory_order_relaxed);
}

static void cache_unlock(void)
{
    atomic_store_explicit(&child.board->owner, 0, memory_order_relaxed);
    pthread_mutex_unlock(&cache_mutex);
}

/* Cache lock held, here and in the three that follow. */
static void entry_drop(struct entry *e)
{
    int error =
        e->watched ? lapse_unwatch(child.handle, e->block, e->len) : 0;
    if (error)
        refused("lapse_unwatch", error);
    give(e->block);
    *e = (struct entry){0};
}

static void entry_fill(struct entry *e)
{
    entry_drop(e);
    /* 2 KiB and more: no thread cache, so the arena's lock is needed. */
    e->len = 2 * KIB + random_next() % (2 * KIB);
    e->block = take(e->len);
    torture_add(&self->mallocs);
    /* A real cache watches what it registers. LAPSE_ALL is told anyway, but
       the watch tables must not meet the allocator's lock either. */
    if (e->block && child.mode != TORTURE_SYNC && random_next() % 32 == 0) {
        int error = lapse_watch(child.handle, e->block, e->len);
        e->watched = !error;
        torture_add(&child.board->watches);
        if (error)
            refused("lapse_watch", error);
    }
}

static void drop_overlapping(const struct lapse_event *event)
{
    for (size_t i = 0; i < ENTRIES; i++) {
        uintptr_t at = (uintptr_t)cache[i].block;
        if (at && at + cache[i].len > event->addr &&
            (at < event->addr || at - event->addr < event->len))
            entry_drop(&cache[i]);
    }
}

static void count_event(const struct lapse_event *event)
{
    if (event->reason < TORTURE_REASONS)
        torture_add(&child.board->told[event->reason]);
    torture_add(event->flags & LAPSE_EVENT_OPEN ? &child.board->told_open
                                                : &child.board->told_closed);
    witness_told(event);
}

static void poll_locked(void)
{
    struct lapse_event events[16];
    int n = 16;

    while (n == 16 && lapse_pending(child.handle)) {
        n = lapse_poll(child.handle, events, 16);
        if (n < 0)
            refused("lapse_poll", n);
        for (int i = 0; i < n; i++) {
            count_event(&events[i]);
            drop_overlapping(&events[i]);
        }
    }
}

void cache_drain(void)
{
    cache_lock();
    poll_locked();
    cache_unlock();
}

void cache_clear(void)
{
    cache_lock();
    for (size_t i = 0; i < ENTRIES; i++)
        entry_drop(&cache[i]);
    cache_unlock();
}

/* Which thread does the handler run on? The heart of the callback phase. */
static void check_thread(void)
{
    if (in_handler)
        torture_add(&child.board->nested);
    if (!self)
        return;
    /* relaxed: only this thread writes it */
    int place = atomic_load_explicit(&self->place, memory_order_relaxed);
    if (place == PLACE_ALLOCATOR)
        torture_add(&child.board->in_allocator);
    if (place == PLACE_RELEASE)
        torture_add(&child.board->in_release);
    if (!in_sync)
        torture_add(&child.board->on_worker);
}

static void handler_lock(void)
{
    if (self)
        atomic_store_explicit(&self->waiting, 1, memory_order_relaxed);
    cache_lock();
    if (self)
        atomic_store_explicit(&self->waiting, 0, memory_order_relaxed);
}

/* The handler of the sync and callback phases. */
void cache_handler(const struct lapse_event *event, void *arg)
{
    bool sync = child.mode == TORTURE_SYNC;

    (void)arg;
    check_thread();
    count_event(event);
    in_handler = true;
    handler_lock();
    /* Inside a release even this malloc can hang, on the lock its own thread
       holds. In the sync phase it asks the thread cache instead, so that the
       hang to be seen is the famous one, of two threads and two locks. */
    void *note = malloc(sync ? 64 : 2 * KIB);
    if (!sync)
        drop_overlapping(event);
    free(note);
    cache_unlock();
    in_handler = false;
}

void *holder(void *thread)
{
    bool jemalloc = child.options->jemalloc;

    thread_begin(thread);
    while (thread_goes_on()) {
        cache_lock();
        if (child.mode == TORTURE_POLL)
            poll_locked();
        entry_fill(&cache[random_next() % ENTRIES]);
        /* Big enough for the allocator to give it back at once: the release
           is then made by the thread that holds the cache lock (case A2).
           jemalloc purges with no lock of its own held: all there is. */
        if ((jemalloc || child.mode != TORTURE_SYNC) &&
            random_next() % 16 == 0)
            give(take(64 * KIB + random_next() % (512 * KIB)));
        cache_unlock();
        torture_add(&self->rounds);
        if (random_next() % 4 == 0)
            usleep(random_next() % 50);
    }
    return NULL;
}
