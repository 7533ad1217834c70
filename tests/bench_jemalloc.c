/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the bridge to jemalloc gains: a program with a cache of registrations
 * (io_uring fixed buffers; where those are not allowed, mlock) allocates, looks
 * up and frees buffers of 256 KiB to 4 MiB in a loop, with jemalloc alone and
 * with the bridge in turn. Prints medians of the runs.
 *
 *     bench_jemalloc LIBDIR           the table
 *     bench_jemalloc child N CACHED   one run of N buffers, with a cache or not
 */
#include <errno.h>
#include <limits.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bench.h"
#include "lapse.h"

#define PAGE 4096ul
#define ENTRIES 64 /* of the cache */
#define LIVE 4     /* buffers in use at once */
#define ROUNDS 5

static int ring = -1;
static lapse_handle handle;
static struct entry {
    char *addr;
    size_t len;
} cache[ENTRIES];
static unsigned long registrations;

static void ring_open(void)
{
    struct io_uring_params params = {0};
    struct io_uring_rsrc_register sparse = {
        .nr = ENTRIES, .flags = IORING_RSRC_REGISTER_SPARSE};

    ring = (int)syscall(SYS_io_uring_setup, 8, &params);
    if (ring >= 0 &&
        syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS2, &sparse,
                sizeof(sparse))) {
        close(ring);
        ring = -1;
    }
}

/* A slot of the table of fixed buffers: len 0 empties it. */
static int ring_set(unsigned slot, void *addr, size_t len)
{
    struct iovec vec = {len ? addr : NULL, len};
    struct io_uring_rsrc_update2 update = {
        .offset = slot, .data = (uintptr_t)&vec, .nr = 1};

    return (int)syscall(SYS_io_uring_register, ring,
                        IORING_REGISTER_BUFFERS_UPDATE, &update,
                        sizeof(update)) == 1
               ? 0
               : -1;
}

static void enter(unsigned slot, char *addr, size_t len)
{
    if (ring >= 0 ? ring_set(slot, addr, len) : mlock(addr, len))
        die("registration");
    cache[slot] = (struct entry){addr, len};
    registrations++;
}

static void drop(unsigned slot)
{
    struct entry *e = &cache[slot];

    if (!e->addr)
        return;
    if (ring >= 0)
        ring_set(slot, NULL, 0);
    else
        munlock(e->addr, e->len);
    lapse_unwatch(handle, e->addr, e->len);
    e->addr = NULL;
}

static void drain(void)
{
    struct lapse_event event[16];
    int n;

    while (lapse_pending(handle) && (n = lapse_poll(handle, event, 16)) > 0)
        for (int i = 0; i < n; i++)
            for (unsigned k = 0; k < ENTRIES; k++)
                if (cache[k].addr && event[i].addr < (uintptr_t)cache[k].addr +
                                                         cache[k].len &&
                    (uintptr_t)cache[k].addr < event[i].addr + event[i].len)
                    drop(k);
}

static void lookup(char *p, size_t len)
{
    static unsigned next;
    char *addr = (char *)((uintptr_t)p & ~(PAGE - 1));

    len = (size_t)(p + len - addr);
    drain();
    for (unsigned k = 0; k < ENTRIES; k++)
        if (cache[k].addr && cache[k].addr <= addr &&
            addr + len <= cache[k].addr + cache[k].len)
            return;
    next = (next + 1) % ENTRIES;
    drop(next);
    if (lapse_watch(handle, addr, len))
        die("lapse_watch");
    enter(next, addr, len);
}

static void operations(int n, int cached)
{
    static char *live[LIVE];
    uint64_t seed = 88172645463325252u;

    for (int i = 0; i < n; i++) {
        size_t len;

        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        len = (256ul * 1024) << seed % 5;
        free(live[i % LIVE]);
        live[i % LIVE] = malloc(len);
        for (size_t at = 0; at < len; at += PAGE)
            live[i % LIVE][at] = (char)i;
        if (cached)
            lookup(live[i % LIVE], len);
    }
}

/* Of the processor: the time on the wall is everybody's. */
static double spent_ns(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e9 +
           (use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e3;
}

static int child(int n, int cached)
{
    struct lapse_subscription how = {.size = sizeof(how),
                                     .delivery = LAPSE_POLL};
    struct rusage use;
    double t;

    ring_open();
    if (lapse_subscribe(&how, &handle))
        die("lapse_subscribe");
    operations(n / 10, cached);
    registrations = 0;
    t = spent_ns();
    operations(n, cached);
    t = (spent_ns() - t) / n;
    getrusage(RUSAGE_SELF, &use);
    printf("%lu %.0f %ld %d\n", registrations, t, use.ru_maxrss, ring >= 0);
    return fflush(stdout) ? 2 : 0;
}

struct result {
    double registrations[ROUNDS], ns[ROUNDS], kb[ROUNDS];
};

static int uring;

struct row {
    const char *label;
    int decay_ms, operations, cached;
};

static void run(struct result *r, int round, const char *libdir, int bridge,
                const struct row *row)
{
    char command[4 * PATH_MAX], self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    FILE *f;

    if (n < 0)
        die("readlink");
    self[n] = 0;
    snprintf(command, sizeof(command),
             "exec env MALLOC_CONF=dirty_decay_ms:%d "
             "LD_PRELOAD='libjemalloc.so.2 %s/liblapse.so%s%s%s' "
             "'%s' child %d %d",
             row->decay_ms, libdir, bridge ? " " : "", bridge ? libdir : "",
             bridge ? "/liblapse-jemalloc.so" : "", self,
             row->operations, row->cached);
    f = popen(command, "r");
    if (!f || fscanf(f, "%lf %lf %lf %d", &r->registrations[round],
                     &r->ns[round], &r->kb[round], &uring) != 4 ||
        pclose(f)) {
        fprintf(stderr, "bench_jemalloc: failed: %s\n", command);
        exit(2);
    }
}

static void print_row(const struct row *row, const char *libdir)
{
    struct result r[2];
    double a, b;

    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < 2; k++)
            run(&r[(i + k) % 2], i, libdir, (i + k) % 2, row);
    a = quantile(r[0].ns, ROUNDS, 0.5) / 1e3;
    b = quantile(r[1].ns, ROUNDS, 0.5) / 1e3;
    printf("%-26s %8.0f %8.0f %8.1f %8.1f %6.2f %7.1f %7.1f\n", row->label,
           quantile(r[0].registrations, ROUNDS, 0.5),
           quantile(r[1].registrations, ROUNDS, 0.5), a, b, b / a,
           quantile(r[0].kb, ROUNDS, 0.5) / 1024,
           quantile(r[1].kb, ROUNDS, 0.5) / 1024);
}

int main(int argc, char **argv)
{
    static const struct row rows[] = {
        {"600, decay 0 ms", 0, 600, 1},
        {"6000, decay 10 ms", 10, 6000, 1},
        {"6000, decay 10 s (default)", 10000, 6000, 1},
        {"600, decay 0 ms, no cache", 0, 600, 0},
    };
    char libdir[PATH_MAX];

    if (argc == 4 && !strcmp(argv[1], "child"))
        return child(atoi(argv[2]), atoi(argv[3]));
    if (!realpath(argc == 2 ? argv[1] : "build", libdir))
        die("realpath");
    printf("%-26s %8s %8s %8s %8s %6s %7s %7s\n%-26s %17s %17s %6s %15s\n",
           "jemalloc: buffers", "alone", "bridge", "alone", "bridge", "",
           "alone", "bridge", "", "registrations", "cpu us a buffer", "ratio",
           "most RSS, MiB");
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        print_row(&rows[i], libdir);
    printf("registration: %s\n",
           uring ? "io_uring fixed buffer" : "mlock (no io_uring here)");
    return 0;
}
