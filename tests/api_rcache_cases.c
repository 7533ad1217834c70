/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faults that others had in their registration caches, on memory that the
 * kernel really pins (io_uring fixed buffers): a stale hit is a wrong byte.
 *   D1  register, use, unmap, the same address again: last round's data
 *   E1  a part of a registration in use is released: a bogus abort
 *   F1  nobody looks anything up: pinned memory is not given back
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "rcache/lapse_rcache_backends.h"
#include "scripts/ring.h"
#include "tests/rcache.h"

#define MIB ((size_t)1 << 20)
/* The same address each time, and for both threads. */
#ifdef __SANITIZE_THREAD__
#define HINT ((char *)0x7e8100000000) /* it has others forbidden */
#else
#define HINT ((char *)0x200000000000)
#endif

static struct ring ring;
static struct lapse_rcache_ops ops;
static lapse_rcache *cache;
static int failures;
static int file; /* what the device writes to */

static void expect(bool ok, const char *what, long is)
{
    if (ok)
        return;
    printf("FAILED  %s (%ld)\n", what, is);
    failures++;
}

static void start(struct lapse_rcache_limits limits)
{
    int err = ring_open(&ring, 8);

    limits.size = sizeof(limits);
    if (err == -ENOSYS || err == -EPERM) {
        puts("skip: no io_uring here");
        exit(77);
    }
    if (!err)
        err = lapse_rcache_uring_open(ring.fd, 1024, &ops);
    if (!err)
        err = lapse_rcache_create(&ops, &limits, &cache);
    if (err) {
        printf("FAILED  to start: %s\n", strerror(-err));
        exit(1);
    }
}

static void stop(void)
{
    expect(lapse_rcache_destroy(cache) == 0, "destroy", 0);
    lapse_rcache_uring_close(&ops);
    ring_close(&ring);
}

/* What the device sees at p. */
static uint64_t device_reads(lapse_region *r, void *p)
{
    uint64_t value = 0;
    int n = ring_do(&ring, IORING_OP_WRITE_FIXED, file, p, sizeof(value), 0,
                    lapse_region_uring_index(r));

    if (n != sizeof(value) ||
        pread(file, &value, sizeof(value), 0) != sizeof(value)) {
        printf("FAILED  write fixed: %d\n", n);
        exit(1);
    }
    return value;
}

static void *map_at(void *hint, size_t len)
{
    void *p = mmap(hint, len, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        exit(2);
    return p;
}

static _Atomic bool grabbing;
static _Atomic long grabbed;

/* Gets the address first, now and then, and gives it back. */
static void *grabber(void *unused)
{
    (void)unused;
    while (grabbing) {
        char *p = map_at(HINT, MIB);

        grabbed += p == HINT;
        *(uint64_t *)p = 0x6ab6ab6ab;
        munmap(p, MIB);
    }
    return NULL;
}

static void d1_round(uint64_t i)
{
    lapse_region *r;
    char *p = map_at(HINT, MIB);

    *(uint64_t *)p = i;
    *(uint64_t *)(p + MIB - 8) = ~i;
    int err = lapse_rcache_get(cache, p, MIB, LAPSE_RCACHE_READ, &r);
    expect(!err, "D1: get", err);
    if (err)
        exit(1);
    uint64_t first = device_reads(r, p);
    uint64_t last = device_reads(r, p + MIB - 8);
    expect(first == i, "D1: the device sees an old round's data", (long)first);
    expect(last == ~i, "D1: the device sees an old round's data", (long)last);
    lapse_rcache_put(cache, r);
    munmap(p, MIB);
}

static void d1(void)
{
    pthread_t t;

    start((struct lapse_rcache_limits){0});
    for (uint64_t i = 1; i <= 1000 && !failures; i++)
        d1_round(i);
    grabbing = true;
    pthread_create(&t, NULL, grabber, NULL);
    for (uint64_t i = 1001;
         (i <= 2000 || (!grabbed && i <= 50000)) && !failures; i++)
        d1_round(i);
    grabbing = false;
    pthread_join(t, NULL);
    expect(grabbed > 0, "D1: the other thread never got the address", 0);
    printf("D1: the other thread got the address %ld times\n",
           grabbed);
    stop();
}

/* Whole and a window of it are registered and in use. */
static void e1(void)
{
    lapse_region *whole, *window, *again, *inner;
    char *p = map_at(NULL, 4 * MIB), *page = p + 2 * MIB + 4096;
    struct lapse_rcache_stats s;

    start((struct lapse_rcache_limits){0});
    memset(p, 1, 4 * MIB);
    lapse_rcache_get(cache, p + 2 * MIB, 65536, 3, &window);
    lapse_rcache_get(cache, p, 4 * MIB, 3, &whole);
    expect(whole != window, "E1: two regions", 0);
    madvise(page, 4096, MADV_DONTNEED);
    *(uint64_t *)page = 42;
    s = stats_of(cache);
    int err = lapse_rcache_get(cache, page, 8, 3, &inner);
    expect(!err && inner != whole && inner != window, "E1: a stale hit", err);
    expect(device_reads(inner, page) == 42, "E1: old data", 0);
    s = stats_of(cache);
    expect(s.invalidated == 2, "E1: both lapse", (long)s.invalidated);
    expect(s.deregistered == 0, "E1: neither goes while in use",
           (long)s.deregistered);
    /* What is still there is still pinned, and to be used by its holders. */
    *(uint64_t *)p = 43;
    expect(device_reads(whole, p) == 43, "E1: the holder's is of no use", 0);
    munmap(p + 3 * MIB, MIB);
    err = lapse_rcache_get(cache, p, 4 * MIB, 3, &again);
    expect(err == -EFAULT, "E1: the tail is gone", err);
    err = lapse_rcache_get(cache, p, 3 * MIB, 3, &again);
    expect(!err && again != whole, "E1: what is left", err);
    lapse_rcache_put(cache, window);
    lapse_rcache_put(cache, whole);
    s = stats_of(cache);
    expect(s.deregistered >= 2 && s.lapsed == 0, "E1: gone at the last put",
           (long)s.deregistered);
    munmap(p, 3 * MIB);
    expect(lapse_rcache_get(cache, p, 4096, 3, &whole) == -EFAULT,
           "E1: later releases count", 0);
    lapse_rcache_put(cache, inner);
    lapse_rcache_put(cache, again);
    stop();
    puts("E1: ok");
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static long pinned_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmPin: %ld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

static void f1(long mallocs)
{
    enum { N = 64, KIB = 64 }; /* 4 MiB: anybody may pin 8 */
    const size_t len = KIB << 10;
    lapse_region *r;
    char *p[N];
    struct lapse_rcache_stats s;
    long rss[2];

    start((struct lapse_rcache_limits){0});
    for (int i = 0; i < N; i++) {
        p[i] = map_at(NULL, len);
        memset(p[i], 1, len);
        if (lapse_rcache_get(cache, p[i], len, 1, &r))
            exit(1);
        lapse_rcache_put(cache, r);
    }
    expect(pinned_kib() >= N * KIB, "F1: not pinned", pinned_kib());
    for (int i = 0; i < N / 2; i++)
        munmap(p[i], len);
    sleep_ms(LAPSE_RCACHE_IDLE_MS + 150); /* and the machine's own delays */
    s = stats_of(cache);
    expect(s.deregistered == N / 2, "F1: kept while idle",
           (long)s.deregistered);
    expect(pinned_kib() <= N / 2 * KIB + 64, "F1: still pinned",
           pinned_kib());
    /* A million hits of others, no miss: they drain, too. */
    for (int i = N / 2; i < N - 1; i++)
        munmap(p[i], len);
    for (int i = 0; i < 1000000; i++) {
        if (lapse_rcache_get(cache, p[N - 1], len, 1, &r))
            exit(1);
        lapse_rcache_put(cache, r);
    }
    s = stats_of(cache);
    expect(s.deregistered == N - 1, "F1: kept while hits go on",
           (long)s.deregistered);
    for (int round = 0; round < 2; round++) {
        for (long i = 0; i < mallocs; i++) {
            volatile char *m = malloc(256 << 10);

            *m = 1;
            free((void *)m);
        }
        FILE *f = fopen("/proc/self/statm", "r");
        if (!f || fscanf(f, "%*d %ld", &rss[round]) != 1)
            exit(2);
        fclose(f);
    }
    expect((rss[1] - rss[0]) * 4096 < (long)(16 * MIB), "F1: memory grows",
           rss[1] - rss[0]);
    stop();
    puts("F1: ok");
}

int main(int argc, char **argv)
{
    file = memfd_create("device", MFD_CLOEXEC);
    d1();
    e1();
    f1(argc > 1 ? atol(argv[1]) : 1000000);
    puts(failures ? "FAILED" : "ok");
    return failures != 0;
}
