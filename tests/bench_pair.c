/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two commands in turn: wall and processor time.
 *
 *     bench_pair NAME N 'command' 'command'
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

static void timed(const char *command, double *wall, double *cpu)
{
    double t = now_ns();
    struct rusage use;
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    if (pid < 0 || wait4(pid, &status, 0, &use) < 0)
        die("run");
    *wall = (now_ns() - t) / 1e6;
    *cpu = (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e3 +
           (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e3;
    if (status) {
        fprintf(stderr, "bench_pair: failed: %s\n", command);
        exit(2);
    }
}

static void print_pair(const char *label, const char *unit, double *a,
                       double *b, double *diff, size_t n)
{
    double bare = quantile(a, n, 0.5), with = quantile(b, n, 0.5);
    double differ = quantile(diff, n, 0.5);

    printf("%-26s %-7s %8.2f %8.2f %+8.2f %+7.2f %+7.2f %+7.2f\n", label, unit,
           bare, with, differ, quantile(diff, n, 0.25),
           quantile(diff, n, 0.75), differ / bare * 100);
}

static int pair(const char *name, int n, const char *bare, const char *with)
{
    enum { MOST = 999 };
    static double wall[2][MOST], cpu[2][MOST], dw[MOST], dc[MOST];

    if (n < 1 || n > MOST)
        n = 7;
    timed(bare, &wall[0][0], &cpu[0][0]); /* once for the page cache */
    timed(with, &wall[1][0], &cpu[1][0]);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < 2; j++) {
            int k = (i + j) % 2;

            timed(k ? with : bare, &wall[k][i], &cpu[k][i]);
        }
        dw[i] = wall[1][i] - wall[0][i];
        dc[i] = cpu[1][i] - cpu[0][i];
    }
    print_pair(name, "wall ms", wall[0], wall[1], dw, (size_t)n);
    print_pair("", "cpu ms", cpu[0], cpu[1], dc, (size_t)n);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fputs("usage: bench_pair NAME N 'command' 'command'\n", stderr);
        return 2;
    }
    return pair(argv[1], atoi(argv[2]), argv[3], argv[4]);
}
