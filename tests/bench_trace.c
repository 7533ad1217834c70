/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a trace costs a release: madvise() of a page that nobody watches, with
 * the library preloaded, without a trace and with it, without and with stacks.
 * The processes run in turn; a figure is the median of the differences to the
 * one without a trace of the same turn.
 *
 *     bench_trace LIBRARY
 */
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { TURNS = 15, BATCHES = 61, CALLS = 1000, MODES = 4 };

static const struct mode {
    const char *name, *stacks;
    bool trace;
    double target; /* ns more; 0: none */
} modes[MODES] = {
    {"no trace", NULL, false, 0},
    {"trace", NULL, true, 60},
    {"trace, stacks of 4 KiB", "4", true, 600},
    {"trace, stacks of 16 KiB", "16", true, 0},
};

static char dir[] = "/dev/shm/lapse-bench-XXXXXX";
static double took[MODES][TURNS];

/* ns a call: the median of batches. */
static double child(void)
{
    static double batch[BATCHES];
    char deep[20000]; /* so that there is as much stack as is to be copied */
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        die("mmap");
    memset(deep, 1, sizeof(deep));
    __asm__ volatile("" : : "r"(deep) : "memory");
    for (int b = -5; b < BATCHES; b++) { /* a few to be warm */
        double t = now_ns();

        for (int i = 0; i < CALLS; i++)
            madvise(page, 4096, MADV_DONTNEED);
        batch[b < 0 ? 0 : b] = (now_ns() - t) / CALLS;
    }
    return quantile(batch, BATCHES, 0.5);
}

static double run(const char *lib, const struct mode *mode)
{
    int ends[2], status;
    double ns = 0;
    pid_t pid;

    if (pipe(ends))
        die("pipe");
    pid = fork();
    if (!pid) {
        char self[PATH_MAX] = "";

        if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
            die("/proc/self/exe");
        setenv("LD_PRELOAD", lib, 1);
        if (mode->trace)
            setenv("LAPSE_TRACE", dir, 1);
        if (mode->stacks)
            setenv("LAPSE_STACKS", mode->stacks, 1);
        dup2(ends[1], STDOUT_FILENO);
        execl(self, self, "child", (char *)NULL);
        die("exec");
    }
    close(ends[1]);
    if (read(ends[0], &ns, sizeof(ns)) != sizeof(ns) ||
        waitpid(pid, &status, 0) != pid || status)
        die("a child that says how long it took");
    close(ends[0]);
    return ns;
}

static void clean(void)
{
    char command[80];

    snprintf(command, sizeof(command), "rm -rf %s", dir);
    if (system(command))
        perror(dir);
}

static bool print(void)
{
    bool over = false;

    printf("%-34s %8s %8s %8s %8s\n", "madvise; median, ns", "", "more", "25%",
           "75%");
    for (int m = 0; m < MODES; m++) {
        double all[TURNS], diff[TURNS], more;

        for (int t = 0; t < TURNS; t++) { /* quantile() sorts */
            all[t] = took[m][t];
            diff[t] = took[m][t] - took[0][t];
        }
        more = quantile(diff, TURNS, 0.5);
        printf("%-34s %8.1f", modes[m].name, quantile(all, TURNS, 0.5));
        if (m)
            printf(" %+8.1f %+8.1f %+8.1f", more,
                   quantile(diff, TURNS, 0.25), quantile(diff, TURNS, 0.75));
        if (modes[m].target && more > modes[m].target) {
            printf("  over: the target is %g", modes[m].target);
            over = true;
        }
        printf("\n");
    }
    return over;
}

int main(int argc, char **argv)
{
    bool over;

    if (argc != 2) {
        fputs("usage: bench_trace LIBRARY\n", stderr);
        return 2;
    }
    if (!strcmp(argv[1], "child")) {
        double ns = child();

        return write(STDOUT_FILENO, &ns, sizeof(ns)) != sizeof(ns);
    }
    if (!mkdtemp(dir))
        die(dir);
    for (int t = 0; t < TURNS; t++) {
        for (int m = 0; m < MODES; m++)
            took[(m + t) % MODES][t] = run(argv[1], &modes[(m + t) % MODES]);
        clean();
        if (mkdir(dir, 0700))
            die(dir);
    }
    clean();
    over = print();
    return over;
}
