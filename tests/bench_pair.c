/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two commands in turn, the bare one and the other: wall and processor time.
 *
 *     bench_pair NAME RUNS SECONDS 'command' 'command' [PID PID]
 *
 * Ends after that many runs of each, or with the first after that time. With
 * process ids also the processor time that those took meanwhile: the servers
 * that the commands load. What is compared are neighbours in time: percent is
 * the median of their differences, of the median of the bare runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

enum { MOST = 999, LEAST = 5 };
enum { WALL, CPU, SERVER, KINDS };

static double spent[KINDS][2][MOST];
static clockid_t server[2];

static double cpu_ms(clockid_t clock)
{
    struct timespec t;

    if (clock_gettime(clock, &t))
        die("the server is gone");
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void timed(const char *command, int which, int run)
{
    double t = now_ns(), served = server[which] ? cpu_ms(server[which]) : 0;
    struct rusage use;
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    if (pid < 0 || wait4(pid, &status, 0, &use) < 0)
        die("run");
    spent[WALL][which][run] = (now_ns() - t) / 1e6;
    spent[CPU][which][run] =
        (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e3 +
        (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e3;
    if (server[which])
        spent[SERVER][which][run] = cpu_ms(server[which]) - served;
    if (status) {
        fprintf(stderr, "bench_pair: failed: %s\n", command);
        exit(2);
    }
}

static void print_pair(const char *name, const char *unit, int kind, size_t n)
{
    double *a = spent[kind][0], *b = spent[kind][1], diff[MOST], bare;

    for (size_t i = 0; i < n; i++)
        diff[i] = b[i] - a[i];
    bare = quantile(a, n, 0.5);
    printf("%-20s %-13s %4zu %8.2f %8.2f %+8.2f %+7.2f %+7.2f\n", name, unit,
           n, bare, quantile(b, n, 0.5), quantile(diff, n, 0.5) / bare * 100,
           quantile(diff, n, 0.25) / bare * 100,
           quantile(diff, n, 0.75) / bare * 100);
}

static int pair(const char *name, int runs, double seconds, char **commands)
{
    double end;
    int n = 0;

    for (int k = 0; k < 2; k++)
        timed(commands[k], k, 0); /* once for the page cache */
    end = now_ns() + seconds * 1e9;
    for (; n < runs && (n < LEAST || now_ns() < end); n++)
        for (int j = 0; j < 2; j++)
            timed(commands[(n + j) % 2], (n + j) % 2, n);
    print_pair(name, "wall ms", WALL, (size_t)n);
    print_pair("", server[0] ? "client cpu ms" : "cpu ms", CPU, (size_t)n);
    if (server[0])
        print_pair("", "server cpu ms", SERVER, (size_t)n);
    return 0;
}

int main(int argc, char **argv)
{
    int runs = argc > 2 ? atoi(argv[2]) : 0;

    if ((argc != 6 && argc != 8) || runs < 1 || runs > MOST) {
        fputs("usage: bench_pair NAME RUNS SECONDS 'command' 'command' "
              "[PID PID]\n", stderr);
        return 2;
    }
    for (int k = 0; argc == 8 && k < 2; k++)
        if (clock_getcpuclockid(atoi(argv[6 + k]), &server[k])) {
            fprintf(stderr, "bench_pair: no process %s\n", argv[6 + k]);
            return 2;
        }
    return pair(argv[1], runs, atof(argv[3]), argv + 4);
}
