/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The workers of torture rcache. Each has some blocks of memory. Again and
 * again it takes one, writes a pattern that never was there before, has the
 * kernel write it to a file from the fixed buffer that the cache names, and
 * compares; and has the kernel read another one into it, and compares. Then
 * it may release the block. A stale hit is a wrong byte.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rcache/lapse_rcache_backends.h"
#include "ring.h"
#include "torture_rcache.h"

#define BLOCKS 12
#define SLOTS 4096
#define LEN_MOST ((size_t)1 << 20)
#define LIMIT_REGIONS 30 /* so that there is eviction */

struct rcache_board *rcache_board;
struct torture_options rcache_options;

static lapse_rcache *cache;
static struct lapse_rcache_ops ops;
static struct ring ring;
static pthread_mutex_t ring_lock = PTHREAD_MUTEX_INITIALIZER;
/* Regions that are put by whoever comes by. */
static _Atomic(lapse_region *) handed_over[16];
static _Atomic uint64_t releases, retries, io;
static struct timespec begin;

struct worker {
    unsigned number;
    uint64_t random, pattern;
    int file;
    char *expected, *seen; /* in the file */
    struct block block[BLOCKS];
    const char *released[BLOCKS]; /* how that place's memory went last */
};

void rcache_trouble(const char *what, int err)
{
    static _Atomic bool said;

    if (!atomic_exchange_explicit(&said, true, memory_order_relaxed))
        snprintf(rcache_board->error, sizeof(rcache_board->error), "%s%s%s",
                 what, err ? ": " : "", err ? strerror(-err) : "");
    atomic_store_explicit(&rcache_board->stop, 1, memory_order_relaxed);
}

static void fill(struct worker *w, char *p, size_t len)
{
    uint64_t key = rcache_random(&w->pattern);

    for (size_t i = 0; i < len; i++) {
        if (!(i & 7))
            key = key * 6364136223846793005ull + 1;
        p[i] = (char)(key >> (i & 7) * 8);
    }
}

static void wrong(struct worker *w, struct block *b, unsigned place,
                  const char *who, const char *got)
{
    struct timespec t;
    size_t i = 0;

    while (i < b->len && got[i] == w->expected[i])
        i++;
    if (atomic_fetch_add_explicit(&rcache_board->wrong, 1,
                                  memory_order_relaxed))
        return;
    clock_gettime(CLOCK_MONOTONIC, &t);
    rcache_board->first_wrong =
        (double)(t.tv_sec - begin.tv_sec) +
        (double)(t.tv_nsec - begin.tv_nsec) / 1e9;
    snprintf(rcache_board->what, sizeof(rcache_board->what),
             "byte %zu of %zu at %p, %s, as %s saw it: %02x, not %02x; last "
             "released by: %s",
             i, b->len, (void *)b->p, block_kind_name(b), who,
             (uint8_t)got[i], (uint8_t)w->expected[i],
             w->released[place] ? w->released[place] : "nothing");
}

static int transfer(int op, int file, void *p, size_t len, lapse_region *r)
{
    int n;

    pthread_mutex_lock(&ring_lock);
    n = ring_do(&ring, op, file, p, (unsigned)len, 0,
                lapse_region_uring_index(r));
    pthread_mutex_unlock(&ring_lock);
    atomic_fetch_add_explicit(&io, 1, memory_order_relaxed);
    return n;
}

/* Both ways through the device. */
static void use(struct worker *w, unsigned place, lapse_region *r)
{
    char *seen = w->seen;
    struct block *b = &w->block[place];
    int n;

    fill(w, b->p, b->len);
    memcpy(w->expected, b->p, b->len);
    n = transfer(IORING_OP_WRITE_FIXED, w->file, b->p, b->len, r);
    if (n == (int)b->len &&
        pread(w->file, seen, b->len, 0) == (ssize_t)b->len) {
        if (memcmp(seen, w->expected, b->len))
            wrong(w, b, place, "the device", seen);
    } else {
        rcache_trouble("WRITE_FIXED", n < 0 ? n : -EIO);
    }
    fill(w, w->expected, b->len);
    if (pwrite(w->file, w->expected, b->len, 0) != (ssize_t)b->len)
        rcache_trouble("pwrite", -errno);
    n = transfer(IORING_OP_READ_FIXED, w->file, b->p, b->len, r);
    if (n != (int)b->len)
        rcache_trouble("READ_FIXED", n < 0 ? n : -EIO);
    else if (memcmp(b->p, w->expected, b->len))
        wrong(w, b, place, "the program", b->p);
}

static void put(struct worker *w, lapse_region *r)
{
    uint64_t x = rcache_random(&w->random);

    if (x % 4 == 0) /* somebody else does, later */
        r = atomic_exchange_explicit(&handed_over[x / 4 % 16], r,
                                     memory_order_acq_rel);
    if (r)
        lapse_rcache_put(cache, r);
}

static void release(struct worker *w, unsigned place)
{
    w->released[place] = block_release(&w->block[place], &w->random);
    atomic_fetch_add_explicit(&releases, 1, memory_order_relaxed);
}

static void put_handed_over(void)
{
    for (int i = 0; i < 16; i++) {
        lapse_region *r = atomic_exchange_explicit(&handed_over[i], NULL,
                                                   memory_order_acq_rel);
        if (r)
            lapse_rcache_put(cache, r);
    }
}

/* What others have in use counts, too, where a limit is low. */
static int get(struct block *b, lapse_region **r)
{
    int err = lapse_rcache_get(cache, b->p, b->len, 3, r);

    for (int i = 0; err == -ENOMEM && i < 1000; i++) {
        put_handed_over();
        usleep(1000);
        err = lapse_rcache_get(cache, b->p, b->len, 3, r);
    }
    return err;
}

static void work(struct worker *w)
{
    unsigned place = (unsigned)(rcache_random(&w->random) % BLOCKS);
    struct block *b = &w->block[place];
    uint64_t x = rcache_random(&w->random);
    lapse_region *r;
    int err;

    if (!b->p && !block_make(b, &w->random))
        return;
    err = get(b, &r);
    if (err == -EAGAIN) {
        atomic_fetch_add_explicit(&retries, 1, memory_order_relaxed);
        return;
    }
    if (err) {
        rcache_trouble(err == -ENOMEM ? "lapse_rcache_get: too little memory "
                                        "may be pinned, raise ulimit -l"
                                      : "lapse_rcache_get", err);
        return;
    }
    use(w, place, r);
    if (x % 8 == 0) { /* with a region in use */
        release(w, place);
        put(w, r);
    } else {
        put(w, r);
        if (x % 8 < 5)
            release(w, place);
    }
    if (x % 4096 == 8)
        lapse_rcache_flush(cache);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;

    w->random = rcache_options.seed * 1000003 + w->number;
    w->pattern = ~w->random;
    w->file = memfd_create("device", MFD_CLOEXEC);
    w->expected = malloc(LEN_MOST);
    w->seen = malloc(LEN_MOST);
    disturb_know(w->number);
    while (!atomic_load_explicit(&rcache_board->stop, memory_order_relaxed)) {
        work(w);
        atomic_fetch_add_explicit(&rcache_board->rounds[w->number], 1,
                                  memory_order_relaxed);
    }
    disturb_forget(w->number);
    for (unsigned i = 0; i < BLOCKS; i++)
        while (w->block[i].p)
            release(w, i);
    free(w->expected);
    free(w->seen);
    close(w->file);
    return NULL;
}

static int start_cache(void)
{
    struct lapse_rcache_limits limits = {
        .size = sizeof(limits),
        .max_regions = LIMIT_REGIONS,
        .merge_bytes = rcache_merge_bytes(&rcache_options),
        .flags = rcache_options.blind ? LAPSE_RCACHE_BLIND : 0};
    int err = ring_open(&ring, 8);

    if (!err)
        err = lapse_rcache_uring_open(ring.fd, SLOTS, &ops);
    if (!err)
        err = lapse_rcache_create(&ops, &limits, &cache);
    return err;
}

static void say_counts(void)
{
    struct lapse_rcache_stats s = {.size = sizeof(s)};

    lapse_rcache_stats(cache, &s);
    snprintf(rcache_board->counts, sizeof(rcache_board->counts),
             "transfers %lu, releases %lu; hits %lu, misses %lu, "
             "invalidated %lu, evicted %lu,\n    merged %lu, registered again "
             "for a release %lu, given up for one %lu",
             io, releases, s.hits, s.misses, s.invalidated, s.evicted,
             s.merged, s.retried, retries);
}

static void stop_cache(void)
{
    int err;

    put_handed_over();
    err = lapse_rcache_destroy(cache);
    if (err)
        rcache_trouble("lapse_rcache_destroy", err);
    lapse_rcache_uring_close(&ops);
    ring_close(&ring);
}

static void start_thread(pthread_t *t, void *(*run)(void *), void *arg)
{
    int err = pthread_create(t, NULL, run, arg);

    if (err) {
        rcache_trouble("pthread_create", -err);
        exit(1);
    }
}

int torture_rcache_child(void)
{
    static struct worker worker[RCACHE_THREADS];
    static void *(*const disturb[RCACHE_DISTURBERS])(void *) = {
        disturb_trim, disturb_fork, disturb_signal};
    pthread_t thread[RCACHE_THREADS + RCACHE_DISTURBERS];
    unsigned n = rcache_options.threads;
    int err = start_cache();

    if (err) {
        rcache_trouble("cannot start", err);
        return 1;
    }
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (unsigned i = 0; i < n; i++) {
        worker[i].number = i;
        start_thread(&thread[i], worker_main, &worker[i]);
    }
    for (unsigned i = 0; i < RCACHE_DISTURBERS; i++)
        start_thread(&thread[n + i], disturb[i],
                     &rcache_board->rounds[n + i]);
    atomic_store_explicit(&rcache_board->running, 1, memory_order_relaxed);
    for (unsigned i = 0; i < n + RCACHE_DISTURBERS; i++)
        pthread_join(thread[i], NULL);
    blocks_finish();
    say_counts();
    stop_cache();
    return rcache_board->error[0] ? 1 : 0;
}
