/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the registration cache costs, with a registrar that does nothing:
 *
 *     bench_rcache           everything; fails when a target is missed
 *     bench_rcache stride N  hits with regions that lie N KiB apart
 *
 * Medians of rounds in one process. Regions of 4 KiB, 8 KiB apart unless said,
 * are chosen at random beforehand; a hit is one get and one put.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rcache/lapse_rcache.h"
#include "shim/lapse.h"

#define KIB ((size_t)1024)
#define ROUNDS 9
#define BATCH 2000 /* short: most have the processor to themselves */
#define BATCHES 500
#define CHOICES (1u << 16)
#define LEN (4 * KIB)

static int failed;

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof(*v), by_value);
    return v[n / 2];
}

static void die(const char *what, int err)
{
    fprintf(stderr, "bench_rcache: %s: %s\n", what, strerror(-err));
    exit(2);
}

static void verdict(const char *what, double is, const char *unit,
                    double limit, int at_least)
{
    int ok = at_least ? is >= limit : is <= limit;

    printf("%-44s %9.1f %-3s  %s %g%s\n", what, is, unit,
           at_least ? "at least" : "at most", limit, ok ? "" : "  MISSED");
    failed |= !ok;
}

static int reg(void *addr, size_t len, unsigned access, void *memory,
               void *arg)
{
    (void)addr, (void)len, (void)access, (void)arg;
    *(uint64_t *)memory = 1;
    return 0;
}

static _Atomic unsigned long deregistered;

static void dereg(void *addr, size_t len, void *memory, void *arg)
{
    (void)addr, (void)len, (void)memory, (void)arg;
    deregistered++;
}

static const struct lapse_rcache_ops ops = {.size = sizeof(ops),
                                            .region_bytes = 8,
                                            .register_region = reg,
                                            .deregister_region = dereg};

/* No thread: what it would do shows in the figures of who calls. */
static lapse_rcache *new_cache(void)
{
    static const struct lapse_rcache_limits limits = {
        .size = sizeof(limits), .idle_ms = LAPSE_RCACHE_NO_TICK};
    lapse_rcache *c;
    int err = lapse_rcache_create(&ops, &limits, &c);

    if (err)
        die("create", err);
    return c;
}

static char *map(size_t bytes)
{
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        die("mmap", -12);
    return p;
}

static void *get(lapse_rcache *c, void *addr, size_t len)
{
    lapse_region *r;
    int err = lapse_rcache_get(c, addr, len, LAPSE_RCACHE_READ, &r);

    if (err)
        die("get", err);
    return r;
}

struct hitter {
    pthread_t thread;
    pthread_barrier_t *start;
    lapse_rcache *c;
    void *const *choice;
    unsigned mask;
    double ns;
};

static __attribute__((noinline)) void hit(struct hitter *h, unsigned from,
                                          unsigned n)
{
    for (unsigned i = from; i < from + n; i++)
        lapse_rcache_put(h->c, get(h->c, h->choice[i & h->mask], LEN));
}

static void *hitter_main(void *arg)
{
    struct hitter *h = arg;

    double batch[BATCHES];

    hit(h, 0, BATCH);
    pthread_barrier_wait(h->start);
    for (unsigned i = 0; i < BATCHES; i++) {
        double begin = now_ns();

        hit(h, i * BATCH, BATCH);
        batch[i] = (now_ns() - begin) / BATCH;
    }
    pthread_barrier_wait(h->start);
    h->ns = median(batch, BATCHES);
    return NULL;
}

/* ns a hit, of one thread; of two: as if one did them all. */
static double hits(struct hitter what, unsigned threads)
{
    pthread_barrier_t start;
    struct hitter h[2];
    double rate = 0;

    pthread_barrier_init(&start, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        h[i] = what;
        h[i].start = &start;
        pthread_create(&h[i].thread, NULL, hitter_main, &h[i]);
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(h[i].thread, NULL);
        rate += 1 / h[i].ns;
    }
    pthread_barrier_destroy(&start);
    return 1 / rate;
}

static void *const *choose(char *base, size_t stride, size_t regions)
{
    static void *choice[CHOICES];
    uint64_t x = 88172645463325252ull;

    for (unsigned i = 0; i < CHOICES; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        choice[i] = base + x % regions * stride;
    }
    return choice;
}

static void bench_hits(size_t regions, size_t stride, double limit)
{
    lapse_rcache *c = new_cache();
    char *base = map(regions * stride), what[80];
    struct hitter all = {.c = c,
                         .choice = choose(base, stride, regions),
                         .mask = CHOICES - 1};
    struct hitter one_region = all;
    double one[ROUNDS], scale[ROUNDS], same[ROUNDS];

    one_region.mask = 0;
    for (size_t i = 0; i < regions; i++)
        lapse_rcache_put(c, get(c, base + i * stride, LEN));
    for (int i = 0; i < ROUNDS; i++) {
        one[i] = hits(all, 1);
        scale[i] = one[i] / hits(all, 2);
        same[i] = hits(one_region, 1) / hits(one_region, 2);
    }
    snprintf(what, sizeof(what), "hit, %zu regions", regions);
    verdict(what, median(one, ROUNDS), "ns", limit, 0);
    verdict("  two threads, together", median(scale, ROUNDS), "x", 1.8, 1);
    verdict("  two threads, same region", median(same, ROUNDS), "x", 1.8, 1);
    lapse_rcache_destroy(c);
    munmap(base, regions * stride);
}

/* munmap by an instruction of ours, which nobody sees. A function, like
 * libc's: after a system call, a return costs more than most of what we do. */
static __attribute__((noinline)) void munmap_bare(void *p, size_t len)
{
    long n = SYS_munmap;

    __asm__ volatile("syscall"
                     : "+a"(n)
                     : "D"(p), "S"(len)
                     : "rcx", "r11", "memory");
}

/* Processor time of this thread: less than the clock's, on a busy machine. */
static double spent_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define TIMES 201
#define BLOCKS 100

/*
 * Regions of one page are unmapped one by one, those of one half by an
 * instruction that nobody sees, those of the other by libc's. Nothing is
 * mapped there: what the kernel does then is short and always the same. (It
 * also flushes no TLB, after which code of ours costs as much as any.)
 */
static void unmap_half(char *half, bool ours)
{
    if (ours)
        for (size_t k = 0; k < BLOCKS; k++)
            munmap(half + k * 2 * LEN, LEN);
    else
        for (size_t k = 0; k < BLOCKS; k++)
            munmap_bare(half + k * 2 * LEN, LEN);
}

static void bench_one(void)
{
    static double took[2][TIMES], told[TIMES];
    lapse_rcache *c = new_cache();
    char *p = (char *)0x10000000, *other = map(LEN); /* nobody maps there */

    for (int i = 0; i < TIMES; i++) {
        lapse_rcache_put(c, get(c, other, LEN));
        for (size_t k = 0; k < 2 * BLOCKS; k++)
            lapse_rcache_put(c, get(c, p + k * 2 * LEN, LEN));
        for (int turn = 0; turn < 2; turn++) {
            bool ours = turn ^ (i & 1); /* first, and below, by turns */
            double begin = spent_ns();

            unmap_half(p + turn * BLOCKS * 2 * LEN, ours);
            took[ours][i] = (spent_ns() - begin) / BLOCKS;
        }
        double begin = spent_ns();
        lapse_rcache_put(c, get(c, other, LEN));
        told[i] = (spent_ns() - begin) / BLOCKS;
        lapse_rcache_flush(c);
    }
    verdict("munmap of one region: the hook",
            median(took[1], TIMES) - median(took[0], TIMES), "ns", 80, 0);
    printf("%-44s %9.1f ns\n", "  invalidating, deregistering it",
           median(told, TIMES));
    lapse_rcache_destroy(c);
    munmap(other, LEN);
}

#define MANY 20000
#define TURNS 51 /* what nine say of some us differs by as much */

/* The pages were never touched: what the kernel frees would hide the rest. */
static void bench_many(void)
{
    double took[2][TURNS], told[TURNS];
    char *other = map(LEN);
    int twice = 0;

    for (int i = 0; i < TURNS; i++) {
        lapse_rcache *c = new_cache();
        unsigned long before;

        lapse_rcache_put(c, get(c, other, LEN));
        for (int turn = 0; turn < 2; turn++) {
            bool ours = turn ^ (i & 1);
            char *p = map(MANY * LEN);

            for (size_t k = 0; k < MANY; k++)
                lapse_rcache_put(c, get(c, p + k * LEN, LEN));
            double begin = spent_ns();
            if (ours)
                munmap(p, MANY * LEN);
            else
                munmap_bare(p, MANY * LEN);
            took[ours][i] = (spent_ns() - begin) / 1e3;
            before = deregistered;
            begin = spent_ns();
            if (ours) {
                lapse_rcache_put(c, get(c, other, LEN));
                told[i] = (spent_ns() - begin) / 1e6;
                twice |= deregistered - before != MANY;
            }
            lapse_rcache_invalidate(c, p, MANY * LEN);
        }
        lapse_rcache_destroy(c);
    }
    verdict("munmap over 20000 regions: slower by",
            median(took[1], TURNS) - median(took[0], TURNS), "us", 5, 0);
    verdict("  invalidating, deregistering them", median(told, TURNS), "ms",
            20, 0);
    verdict("  a region that was not, or twice", twice, "", 0, 0);
}

static void resident(long *kib, long *lines)
{
    char line[512];
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f || fscanf(f, "%*d %ld", kib) != 1)
        die("statm", -2);
    *kib *= 4;
    fclose(f);
    f = fopen("/proc/self/maps", "r");
    for (*lines = 0; f && fgets(line, sizeof(line), f);)
        ++*lines;
    if (f)
        fclose(f);
}

/* Addresses move, so that index nodes come and go too. */
static void bench_cycles(void)
{
    lapse_rcache *c = new_cache();
    char *base = map(4096 * 1024 * KIB);
    long kib[2], lines[2];
    double begin = now_ns();
    const unsigned n = 1000000;

    for (unsigned i = 0; i < n + n / 10; i++) {
        char *p = base + i * 7919ull % 4096 * 1024 * KIB;

        if (i == n / 10)
            resident(&kib[0], &lines[0]);
        lapse_rcache_put(c, get(c, p, LEN));
        if (i % 2)
            madvise(p, LEN, MADV_DONTNEED);
        else
            lapse_rcache_invalidate(c, p, LEN);
    }
    resident(&kib[1], &lines[1]);
    printf("%-44s %9.1f ns\n", "register, release, deregister",
           (now_ns() - begin) / (n + n / 10));
    verdict("  10^6 of them: resident memory grows",
            (double)(kib[1] - kib[0]), "KiB", 128, 0);
    verdict("  10^6 of them: lines of maps more",
            (double)(lines[1] - lines[0]), "", 2, 0);
    lapse_rcache_destroy(c);
    munmap(base, 4096 * 1024 * KIB);
}

int main(int argc, char **argv)
{
    size_t stride = 8 * KIB;

    if (argc == 3 && !strcmp(argv[1], "stride"))
        stride = (size_t)strtoul(argv[2], NULL, 10) * KIB;
    bench_hits(100, stride, 7);
    bench_hits(10000, stride, 9);
    bench_hits(100000, stride, 16);
    if (argc > 1)
        return failed;
    bench_one();
    bench_many();
    bench_cycles();
    return failed;
}
