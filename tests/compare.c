/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs of bench_release, bare and preloaded in turn, side by side: medians
 * and differences, one row a loop.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "compare.h"

#define ROUNDS 9
#define KEYS 64

/* What the runs printed, by key, a value a round. */

static struct {
    char key[32];
    double v[ROUNDS];
} seen[2][KEYS];

static double *values(int preloaded, const char *key)
{
    for (int i = 0; i < KEYS; i++) {
        if (!seen[preloaded][i].key[0])
            snprintf(seen[preloaded][i].key, 32, "%s", key);
        if (!strcmp(seen[preloaded][i].key, key))
            return seen[preloaded][i].v;
    }
    die("too many keys");
    return NULL;
}

static void run(int preloaded, int with_free, int round, const char *lib)
{
    char command[2 * PATH_MAX], self[PATH_MAX], key[32];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    double value;
    FILE *f;

    if (n < 0)
        die("readlink");
    self[n] = 0;
    snprintf(command, sizeof(command), "exec env %s%s%s '%s' child",
             with_free ? "LAPSE_FREE=1 " : "",
             preloaded ? "LD_PRELOAD=" : "-u LD_PRELOAD", preloaded ? lib : "",
             self);
    f = popen(command, "r");
    if (!f)
        die("popen");
    while (fscanf(f, "%31s %lf", key, &value) == 2)
        values(preloaded, key)[round] = value;
    if (pclose(f)) {
        fprintf(stderr, "bench_release: a run failed: %s\n", command);
        exit(2);
    }
}

static const struct row {
    const char *label, *bare, *preloaded;
    double target; /* for the difference; NAN: none */
} rows[] = {
    {"malloc+free, no subscriber", "malloc", "malloc", NAN},
    {"  LAPSE_FREE=1, no subscriber", "malloc", "free", 3},
    {"  two watches in the same heap", "malloc", "free.2", 3},
    {"  1000 watches elsewhere", "malloc", "free.1000", 3},
    {"munmap of nothing, no subscriber", "munmap", "munmap", 15},
    {"  one subscriber, no watch", "munmap", "munmap.0", 15},
    {"  1000 watches elsewhere", "munmap", "munmap.1000", 15},
    {"  100000 watches elsewhere", "munmap", "munmap.100000", 15},
    {"  between two watched pages", "munmap", "munmap.between", NAN},
    {"madvise of nothing, no subscriber", "madvise", "madvise", 15},
    {"  one subscriber, no watch", "madvise", "madvise.0", 15},
    {"  1000 watches elsewhere", "madvise", "madvise.1000", 15},
    {"  100000 watches elsewhere", "madvise", "madvise.100000", 15},
    {"munmap of 1 TiB, no subscriber", "tib", "tib", 1000},
    {"  100000 watches elsewhere", "tib", "tib.100000", 1000},
    {"watched munmap, told and polled", "munmap", "watched", 80},
    {"lapse_pending, nothing waits", NULL, "pending", NAN},
    {"lapse_poll, nothing waits", NULL, "poll", NAN},
};

static double median_of(const double *v)
{
    double copy[ROUNDS];

    memcpy(copy, v, sizeof(copy));
    return quantile(copy, ROUNDS, 0.5);
}

static int print_row(const struct row *r)
{
    char more[2][40];
    double diff[ROUNDS], bare = NAN, target = r->target, m;

    snprintf(more[0], 40, "%s+", r->bare ? r->bare : "");
    snprintf(more[1], 40, "%s+", r->preloaded);
    for (int i = 0; i < ROUNDS; i++)
        diff[i] = values(1, more[1])[i] -
                  (r->bare ? values(0, more[0])[i] : 0);
    if (r->bare)
        bare = median_of(values(0, r->bare));
    m = quantile(diff, ROUNDS, 0.5);
    if (r->bare)
        printf("%-34s %8.1f", r->label, bare);
    else
        printf("%-34s %8s", r->label, "-");
    printf(" %8.1f %+8.1f %+7.1f %+7.1f", median_of(values(1, r->preloaded)),
           m, quantile(diff, ROUNDS, 0.25), quantile(diff, ROUNDS, 0.75));
    if (!isnan(target))
        printf(" %6.0f%s", target, m > target ? "  over" : "");
    putchar('\n');
    return !isnan(target) && m > target;
}

static int print_memory(void)
{
    double lib = median_of(values(1, "rss"));

    printf("%-34s %8s %8.0f %8s %7s %7s %6d%s\n",
           "memory of the library (kB)", "-", lib, "", "", "", 256,
           lib > 256 ? "  over" : "");
    printf("%-34s %8s %8.0f\n", "  of that the process's own", "-",
           median_of(values(1, "rss.own")));
    printf("%-34s %8.0f %8.0f %+8.0f\n", "  of its own, of everybody's (kB)",
           median_of(values(0, "rss.all.own")),
           median_of(values(1, "rss.all.own")),
           median_of(values(1, "rss.all.own")) -
               median_of(values(0, "rss.all.own")));
    return lib > 256;
}

int compare(const char *lib)
{
    int over = 0;
    char full[PATH_MAX];

    if (!realpath(lib, full))
        die(lib);
    for (int i = 0; i < ROUNDS; i++) {
        run(i % 2, 0, i, full);
        run(!(i % 2), 0, i, full);
        run(1, 1, i, full);
    }
    printf("%-34s %8s %8s %8s %7s %7s %6s\n", "ns a call; median of runs",
           "bare", "preload", "differ", "25%", "75%", "target");
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        over += print_row(&rows[i]);
    over += print_memory();
    return over ? 1 : 0;
}
