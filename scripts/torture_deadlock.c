/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The founding deadlock, as a child process of scripts/torture.
 *
 * Holders take the lock of a toy cache and call malloc and free with it held.
 * Releasers free what makes the allocator give memory back to the kernel
 * while it holds its own lock. The handler takes the cache lock and calls
 * malloc. Run inside the release (LAPSE_INLINE) the two locks are taken in
 * both orders; run anywhere else they never are (G3).
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "torture_child.h"

#define BATCH 8  /* blocks freed together, from the top of the heap down */
#define SLOTS 16 /* batches on their way from one releaser to another */

struct torture_child child;
__thread struct torture_thread *self;
__thread bool in_sync;

static __thread uint64_t random_state;
static void **_Atomic slots[SLOTS];

uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state >> 11; /* the low bits are the weak ones */
}

void thread_begin(struct torture_thread *thread)
{
    self = thread;
    random_state = (child.options->seed + (uint64_t)(thread -
                    child.board->thread)) * 0x9e3779b97f4a7c15u | 1;
    atomic_store_explicit(&thread->tid, gettid(), memory_order_relaxed);
    free(malloc(64)); /* one for the thread cache: see cache_handler() */
    /* Nobody starts early: a hang must not catch main() in pthread_create,
       before the parent knows that it may start to watch. */
    while (!atomic_load_explicit(&child.board->running, memory_order_relaxed))
        usleep(1000);
}

bool thread_goes_on(void)
{
    return !atomic_load_explicit(&child.board->stop, memory_order_relaxed);
}

void place_set(enum torture_place place)
{
    if (self) /* relaxed: for this thread, and for the parent to print */
        atomic_store_explicit(&self->place, place, memory_order_relaxed);
}

void *take(size_t size)
{
    place_set(PLACE_ALLOCATOR);
    char *block = malloc(size);
    place_set(PLACE_OUTSIDE);
    if (block)
        block[0] = block[size - 1] = 1;
    return block;
}

void give(void *block)
{
    place_set(PLACE_ALLOCATOR);
    free(block);
    place_set(PLACE_OUTSIDE);
}

void refused(const char *call, int error)
{
    if (atomic_fetch_add_explicit(&child.board->refused, 1,
                                  memory_order_relaxed) == 0)
        snprintf(child.board->error, sizeof(child.board->error), "%s: %s",
                 call, strerrordesc_np(-error));
}

/*
 * Free a batch that another releaser made, highest address first: each block
 * merges with the top of the heap, and from 64 KiB on glibc trims the heap
 * under the arena's lock. The batch's addresses are kept in its first block.
 */
static void free_batch(void **batch)
{
    for (int i = BATCH - 1; batch && i >= 0; i--)
        give(batch[i]); /* batch[0] is the batch itself, and goes last */
}

static void swap_batches(void)
{
    void **batch = take(100 * KIB);

    if (!batch)
        return;
    batch[0] = batch;
    for (int i = 1; i < BATCH; i++)
        batch[i] = take(100 * KIB + random_next() % (28 * KIB));
    /* A1, with itself in another thread: the batch's contents go along. */
    batch = atomic_exchange_explicit(&slots[random_next() % SLOTS], batch,
                                     memory_order_acq_rel);
    free_batch(batch);
}

static void map_and_unmap(void)
{
    size_t len = (1 + random_next() % 16) * 4 * KIB;
    char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return;
    p[0] = 1;
    place_set(PLACE_RELEASE);
    munmap(p, len);
    place_set(PLACE_OUTSIDE);
}

static void publish_something(void)
{
    static char pool[8 * KIB];
    lapse_release release;

    place_set(PLACE_RELEASE);
    int error = lapse_publish_begin(pool, sizeof(pool), &release);
    if (!error)
        error = lapse_publish_end(&release);
    place_set(PLACE_OUTSIDE);
    if (error)
        refused("lapse_publish_begin, _end", error);
}

static void resize_something(void)
{
    char *block = take(512 * KIB + random_next() % (512 * KIB));

    place_set(PLACE_ALLOCATOR);
    char *smaller = realloc(block, 64 * KIB);
    place_set(PLACE_OUTSIDE);
    give(smaller ? smaller : block);
}

/* Not beside another allocator: of glibc's, which nobody has used then, two
   threads must not make the first call at once. */
static void trim(void)
{
    if (child.options->jemalloc)
        return;
    place_set(PLACE_ALLOCATOR);
    malloc_trim(0); /* madvise on every hole, under the arena's lock */
    place_set(PLACE_OUTSIDE);
}

static void witness(void)
{
    unsigned number = (unsigned)(self - child.board->thread);

    place_set(PLACE_RELEASE);
    witness_release(number - child.options->threads);
    place_set(PLACE_OUTSIDE);
}

static void sync_now(void)
{
    if (child.mode != TORTURE_CALLBACK)
        return;
    in_sync = true;
    int error = lapse_sync(child.handle);
    in_sync = false;
    torture_add(&child.board->syncs);
    if (error)
        refused("lapse_sync", error);
}

static void *releaser(void *thread)
{
    thread_begin(thread);
    while (thread_goes_on()) {
        /* The sync phase needs one thing only, and that often. */
        uint64_t dice = child.mode == TORTURE_SYNC ? 63 : random_next() % 64;
        if (dice < 4)
            map_and_unmap();
        else if (dice < 6)
            publish_something();
        else if (dice < 10)
            resize_something();
        else if (dice < 11)
            sync_now();
        else if (dice < 24)
            witness();
        else if (dice < 26)
            trim();
        else
            swap_batches();
        torture_add(&self->releases);
        torture_add(&self->rounds);
    }
    return NULL;
}

/* Keep big blocks in the heap and give them back at once; jemalloc is told
   by MALLOC_CONF instead. */
static void tune_glibc(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 0);
    mallopt(M_TOP_PAD, 0);
}

static int subscribe(void)
{
    static const uint32_t deliveries[TORTURE_MODES] = {
        [TORTURE_SYNC] = LAPSE_INLINE,
        [TORTURE_CALLBACK] = LAPSE_CALLBACK,
        [TORTURE_POLL] = LAPSE_POLL,
    };
    struct lapse_subscription how = {
        .size = sizeof(how),
        .delivery = deliveries[child.mode],
        .flags = LAPSE_ALL,
        .callback = child.mode == TORTURE_POLL ? NULL : cache_handler,
    };

    return lapse_subscribe(&how, &child.handle);
}

/* All threads are joined: whatever was published must now be told. */
static void finish(void)
{
    struct torture_board *b = child.board;

    for (size_t i = 0; i < SLOTS; i++)
        free_batch(atomic_load_explicit(&slots[i], memory_order_relaxed));
    cache_clear();
    if (child.mode == TORTURE_CALLBACK) {
        int error = lapse_sync(child.handle);
        if (error)
            refused("lapse_sync", error);
    } else {
        for (int i = 0; i < 100 && lapse_pending(child.handle); i++)
            cache_drain();
        b->never_quiet = lapse_pending(child.handle);
    }
    b->lost = witness_lost();
    b->stats.size = sizeof(b->stats);
    int error = lapse_stats(&b->stats);
    if (error)
        refused("lapse_stats", error);
    error = lapse_unsubscribe(child.handle);
    if (error)
        refused("lapse_unsubscribe", error);
    atomic_store_explicit(&b->finished, 1, memory_order_relaxed);
}

int deadlock_child(const struct torture_options *options,
                   enum torture_mode mode, struct torture_board *board)
{
    static pthread_t thread[2 * TORTURE_THREADS];

    child = (struct torture_child){options, mode, board, {0}};
    if (!options->jemalloc)
        tune_glibc();
    /* first: a callback looks at it */
    if (!witness_init(options->threads)) {
        refused("mmap", errno);
        return 1;
    }
    int error = subscribe();
    if (error) {
        refused("lapse_subscribe", error);
        return 1;
    }
    for (unsigned i = 0; i < board->threads; i++) {
        struct torture_thread *t = &board->thread[i];
        t->holder = i < options->threads;
        error = pthread_create(&thread[i], NULL,
                               t->holder ? holder : releaser, t);
        if (error) {
            refused("pthread_create", -error);
            return 1;
        }
    }
    atomic_store_explicit(&board->running, 1, memory_order_relaxed);
    for (unsigned i = 0; i < board->threads; i++)
        pthread_join(thread[i], NULL);
    finish();
    return 0;
}
