/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the library costs: the same loops, bare and preloaded.
 *
 *     bench_release [LIB]          runs itself without and with LD_PRELOAD=LIB
 *                                  in turn, and prints medians and differences
 *     bench_release malloc N       N pairs of malloc and free, in malloc_loop()
 *     bench_release child          one of the runs; prints "key value" lines
 *
 * Two processes are never laid out alike, and the kernel's own time differs
 * with that by more than the library costs. So each run also times the same
 * system call made by an instruction of this program, which nobody patches,
 * in batches that alternate with those through libc; what is compared is how
 * much dearer libc's call is than that one, bare and preloaded. Batches are
 * short, and the fast ones count: those had the processor to themselves.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"
#include "compare.h"
#include "lapse.h"
#include "sys.h"

#define BATCHES 301
#define CALLS 100
#define QUIET 0.1 /* of the batches of a run, the tenth that is fastest */
#define PAGE 4096ul
#define TIB ((size_t)1 << 40)

static int (*subscribe)(const struct lapse_subscription *, lapse_handle *);
static int (*unsubscribe)(lapse_handle);
static int (*watch)(lapse_handle, const void *, size_t);
static int (*poll_events)(lapse_handle, struct lapse_event *, size_t);

static lapse_handle handle;
static char *probe; /* a page that is not mapped, or not touched */

/* The loops. Each is a function: its loop is all that is in it. */

#define LOOP static __attribute__((noinline)) void

LOOP loop_munmap(int n)
{
    while (n--)
        munmap(probe, PAGE);
}

LOOP loop_munmap_own(int n)
{
    while (n--)
        sys(SYS_munmap, probe, PAGE);
}

LOOP loop_madvise(int n)
{
    while (n--)
        madvise(probe, PAGE, MADV_DONTNEED);
}

LOOP loop_madvise_own(int n)
{
    while (n--)
        sys(SYS_madvise, probe, PAGE, MADV_DONTNEED);
}

LOOP loop_munmap_poll(int n)
{
    struct lapse_event event[4];

    while (n--) {
        munmap(probe, PAGE);
        if (lapse_pending(handle) && poll_events(handle, event, 4) != 1)
            die("not one event");
    }
}

LOOP loop_pending(int n)
{
    while (n--) {
        if (lapse_pending(handle))
            die("pending");
        __asm__ volatile("" ::: "memory");
    }
}

LOOP loop_poll(int n)
{
    struct lapse_event event[4];

    while (n--)
        poll_events(handle, event, 4);
}

LOOP loop_nothing(int n)
{
    while (n--)
        __asm__ volatile("" ::: "memory");
}

/* Found by name by callgrind. */
void malloc_loop(int n);
__attribute__((noinline)) void malloc_loop(int n)
{
    while (n--) {
        void *p = malloc(64);

        __asm__ volatile("" : "+r"(p)::"memory");
        free(p);
    }
}

static double once(void (*loop)(int), int n)
{
    double t = now_ns();

    loop(n);
    return (now_ns() - t) / n;
}

/* The time through libc, and how much more it is than our own. Sorts. */
static void print_measured(const char *key, double *a, double *own, size_t n)
{
    double quiet = quantile(a, n, QUIET);

    printf("%s %.3f\n%s+ %.3f\n", key, quiet, key,
           quiet - quantile(own, n, QUIET));
}

static void measure(const char *key, void (*loop)(int), void (*own)(int))
{
    double a[BATCHES], own_ns[BATCHES];

    loop(CALLS);
    for (int i = 0; i < BATCHES; i++) {
        if (i % 2)
            a[i] = once(loop, CALLS);
        own_ns[i] = once(own, CALLS);
        if (i % 2 == 0)
            a[i] = once(loop, CALLS);
    }
    print_measured(key, a, own_ns, BATCHES);
}

static char *reserve(size_t len)
{
    char *p = mmap(NULL, len, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        die("mmap");
    return p;
}

static void measure_tib(const char *key)
{
    enum { N = 200 };
    double a[N], own_ns[N];

    for (int i = 0; i < N; i++) {
        char *p = reserve(TIB);
        double t = now_ns();

        munmap(p, TIB);
        a[i] = now_ns() - t;
        p = reserve(TIB);
        t = now_ns();
        sys(SYS_munmap, p, TIB);
        own_ns[i] = now_ns() - t;
    }
    print_measured(key, a, own_ns, N);
}

/* kB of the library's own lines in smaps (its file, and the memory behind
 * that without a name), and of the whole process. */
static void measure_memory(void)
{
    Dl_info info;
    const char *lib = NULL;
    FILE *f = fopen("/proc/self/smaps", "r");
    unsigned long start, end, before = 0, kb;
    unsigned long rss = 0, own = 0, all_own = 0;
    char line[4400], name[4200];
    int ours = 0;

    if (!f)
        die("smaps");
    if (subscribe && dladdr(*(void **)&subscribe, &info))
        lib = info.dli_fname;
    while (fgets(line, sizeof(line), f)) {
        name[0] = 0;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %4199s", &start, &end,
                   name) >= 2 && strchr(line, '-') < strchr(line, ' ')) {
            ours = (lib && !strcmp(name, lib)) ||
                   (ours && start == before && !name[0]);
            before = end;
        } else if (sscanf(line, "Rss: %lu", &kb) == 1) {
            rss += ours ? kb : 0;
        } else if (sscanf(line, "Anonymous: %lu", &kb) == 1) {
            all_own += kb;
            own += ours ? kb : 0;
        }
    }
    fclose(f);
    printf("rss %lu\nrss.own %lu\nrss.all.own %lu\n", rss, own, all_own);
}

static void measure_probe(const char *munmap_key, const char *madvise_key,
                          char *unmapped, char *untouched)
{
    probe = unmapped;
    measure(munmap_key, loop_munmap, loop_munmap_own);
    probe = untouched;
    measure(madvise_key, loop_madvise, loop_madvise_own);
}

static void watch_every_other(char *from, int n, int already)
{
    for (int i = already; i < n; i++)
        if (watch(handle, from + 2 * PAGE * i, PAGE))
            die("lapse_watch");
}

/* Watches are made where nothing is mapped: the library does not mind, and
 * the kernel is given the same work with any number of them. */
static void measure_watched(char *unmapped, char *untouched)
{
    struct lapse_subscription how = {.size = sizeof(how),
                                     .delivery = LAPSE_POLL};
    char *far = reserve((size_t)4 << 30);

    *(void **)&unsubscribe = dlsym(RTLD_DEFAULT, "lapse_unsubscribe");
    *(void **)&watch = dlsym(RTLD_DEFAULT, "lapse_watch");
    *(void **)&poll_events = dlsym(RTLD_DEFAULT, "lapse_poll");
    if (subscribe(&how, &handle))
        die("lapse_subscribe");
    measure_probe("munmap.0", "madvise.0", unmapped, untouched);
    watch_every_other(far, 1000, 0);
    measure_probe("munmap.1000", "madvise.1000", unmapped, untouched);
    watch_every_other(far, 100000, 1000);
    measure_probe("munmap.100000", "madvise.100000", unmapped, untouched);
    measure_tib("tib.100000");
    measure("pending", loop_pending, loop_nothing);
    measure("poll", loop_poll, loop_nothing);
    munmap(far, (size_t)4 << 30);
    while (poll_events(handle, (struct lapse_event[1]){}, 1) > 0)
        ;
    probe = far + PAGE; /* between two that are watched */
    measure("munmap.between", loop_munmap, loop_munmap_own);
    probe = unmapped;
    if (watch(handle, probe, PAGE))
        die("lapse_watch");
    measure("watched", loop_munmap_poll, loop_munmap_own);
    unsubscribe(handle);
}

/* With LAPSE_FREE=1. The block of malloc_loop() lies between watches. */
static void measure_free(void)
{
    struct lapse_subscription how = {.size = sizeof(how),
                                     .delivery = LAPSE_POLL,
                                     .reasons =
                                         LAPSE_MASK(LAPSE_REASON_FREE)};
    char *block[5], *below, *above;
    char *far = reserve((size_t)4 << 30);

    for (int i = 0; i < 5; i++)
        block[i] = malloc(100000);
    below = block[0];
    above = block[4];
    free(block[2]); /* malloc_loop() takes of that */
    measure("free", malloc_loop, loop_nothing);
    *(void **)&watch = dlsym(RTLD_DEFAULT, "lapse_watch");
    if (subscribe(&how, &handle) || watch(handle, below, PAGE) ||
        watch(handle, above, PAGE))
        die("FREE");
    measure("free.2", malloc_loop, loop_nothing);
    watch_every_other(far, 1000, 0);
    measure("free.1000", malloc_loop, loop_nothing);
}

static int child(void)
{
    char *p = reserve(64 * PAGE), *unmapped = p + 16 * PAGE, *untouched;

    munmap(unmapped, PAGE);
    untouched = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (untouched == MAP_FAILED)
        die("mmap");
    if (untouched == unmapped) { /* took the hole: make another */
        unmapped = p + 32 * PAGE;
        munmap(unmapped, PAGE);
    }
    *(void **)&subscribe = dlsym(RTLD_DEFAULT, "lapse_subscribe");
    measure_memory();
    if (subscribe && getenv("LAPSE_FREE")) {
        measure_free();
        return fflush(stdout) ? 2 : 0;
    }
    measure("malloc", malloc_loop, loop_nothing);
    measure_probe("munmap", "madvise", unmapped, untouched);
    measure_tib("tib");
    if (subscribe)
        measure_watched(unmapped, untouched);
    return fflush(stdout) ? 2 : 0;
}

int main(int argc, char **argv)
{
    void *p = malloc(64);

    /* the loader binds both now, outside of malloc_loop() */
    __asm__ volatile("" : "+r"(p)::"memory");
    free(p);
    if (argc == 2 && !strcmp(argv[1], "child"))
        return child();
    if (argc == 3 && !strcmp(argv[1], "malloc")) {
        malloc_loop(atoi(argv[2]));
        return 0;
    }
    return compare(argc == 2 ? argv[1] : "build/liblapse.so");
}
