/* SPDX-License-Identifier: BSD-3-Clause */
/* What the benchmarks share: a clock, and quantiles of what it showed. */
#ifndef BENCH_H
#define BENCH_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline void die(const char *what)
{
    perror(what);
    exit(2);
}

static inline double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static inline int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Sorts. */
static inline double quantile(double *v, size_t n, double q)
{
    qsort(v, n, sizeof(*v), by_value);
    return v[(size_t)((double)(n - 1) * q + 0.5)];
}

#endif
