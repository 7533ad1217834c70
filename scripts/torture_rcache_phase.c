/* SPDX-License-Identifier: BSD-3-Clause */
/* One phase of torture rcache: start the child, watch its counters move or
   stand still, judge. */
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "torture.h"
#include "torture_rcache.h"
#include "torture_rcache_blocks.h"
#include "torture_start.h"

#define STILL 10.0     /* any thread, for so long: hung */
#define CONTROL 10     /* seconds in which the control must find something */
#define ALL_WAYS 60    /* seconds in which every way must have been gone */

volatile sig_atomic_t rcache_interrupted;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void torture_rcache_enter_child(int argc, char **argv)
{
    static char library[4096];

    if (argc != 7 || strcmp(argv[1], "--rcache-child"))
        return;
    rcache_board = torture_map(atoi(argv[2]), sizeof(*rcache_board));
    rcache_options.threads = (unsigned)atoi(argv[3]);
    rcache_options.seed = strtoull(argv[4], NULL, 10);
    rcache_options.blind = argv[5][0] == '1';
    rcache_options.jemalloc = argv[6][0] == '1';
    if (readlink("/proc/self/exe", library, sizeof(library) - 32) < 0)
        exit(2);
    strcat(dirname(library), "/torture-library.so");
    blocks_start(library);
    /* ld.so only warns when it cannot preload, and glibc would be tested. */
    if (heap_start() != rcache_options.jemalloc) {
        rcache_trouble(rcache_options.jemalloc
                           ? "libjemalloc.so.2 cannot be loaded; install "
                             "libjemalloc2"
                           : "there is a jemalloc; take --allocator jemalloc, "
                             "or it out of LD_PRELOAD", 0);
        exit(1);
    }
    exit(torture_rcache_child());
}

/* What malloc does early and often; it is read at program start. */
static void set_environment(bool jemalloc)
{
    const char *before = getenv(jemalloc ? "LD_PRELOAD" : "GLIBC_TUNABLES");
    char value[4096];

    setenv("MALLOC_ARENA_MAX", "2", 1); /* of a dlmopen, too */
    setenv("MALLOC_TRIM_THRESHOLD_", "65536", 1);
    setenv("MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0", 1);
    snprintf(value, sizeof(value), "glibc.pthread.stack_cache_size=%zu%s%s",
             RCACHE_STACKS_KEPT, !jemalloc && before ? ":" : "",
             !jemalloc && before ? before : "");
    setenv("GLIBC_TUNABLES", value, 1);
    if (!jemalloc)
        return;
    snprintf(value, sizeof(value), "libjemalloc.so.2%s%s", before ? ":" : "",
             before ? before : "");
    setenv("LD_PRELOAD", value, 1);
}

/* An interrupted terminal signals it, too: the parent says when it ends. */
static void ignore_interrupts(void)
{
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
}

static pid_t start(const struct torture_options *o, int fd)
{
    char args[3][24];
    pid_t pid = torture_fork();

    if (pid)
        return pid;
    ignore_interrupts();
    set_environment(o->jemalloc);
    snprintf(args[0], sizeof(args[0]), "%d", fd);
    snprintf(args[1], sizeof(args[1]), "%u", o->threads);
    snprintf(args[2], sizeof(args[2]), "%lu", (unsigned long)o->seed);
    execl("/proc/self/exe", "torture", "--rcache-child", args[0], args[1],
          args[2], o->blind ? "1" : "0", o->jemalloc ? "1" : "0", (char *)NULL);
    perror("torture: cannot start itself again");
    _exit(1);
}

/* The longest that a thread has been standing still. */
static double longest(const struct torture_options *o,
                      struct rcache_board *board, uint64_t *last,
                      double *moved)
{
    double most = 0, t = now();

    for (unsigned i = 0; i < o->threads + RCACHE_DISTURBERS; i++) {
        uint64_t n = torture_get(&board->rounds[i]);

        if (n != last[i] || !moved[i])
            moved[i] = t;
        last[i] = n;
        if (t - moved[i] > most)
            most = t - moved[i];
    }
    return most;
}

/* Until it ended; false: it hangs. */
static bool watch(pid_t pid, const struct torture_options *o,
                  struct rcache_board *board, int *status)
{
    uint64_t last[RCACHE_THREADS + RCACHE_DISTURBERS] = {0};
    double moved[RCACHE_THREADS + RCACHE_DISTURBERS] = {0};
    double begin = now(), stopped = 0;

    for (;; usleep(20000)) {
        if (waitpid(pid, status, WNOHANG) == pid)
            return true;
        if (!stopped && (now() - begin > o->seconds || rcache_interrupted ||
                         torture_int(&board->stop) ||
                         torture_get(&board->wrong))) {
            atomic_store_explicit(&board->stop, 1, memory_order_relaxed);
            stopped = now();
        }
        if (stopped ? now() - stopped > 2 * STILL
                    : longest(o, board, last, moved) > STILL)
            return false;
    }
}

/* Ends the child. Says what it was. */
static bool judge(const struct torture_options *o, struct rcache_board *board,
                  bool ended, int status, double ran)
{
    uint64_t wrong = torture_get(&board->wrong);
    bool all;

    if (!ended)
        printf("  HUNG: a thread stood still for %g s\n", STILL);
    else if (WIFSIGNALED(status))
        printf("  killed by %s\n", strsignal(WTERMSIG(status)));
    if (board->error[0])
        printf("  error: %s\n", board->error);
    if (board->counts[0])
        printf("  %s\n", board->counts);
    if (wrong)
        printf("  WRONG after %.2f s: %s\n", board->first_wrong, board->what);
    else
        printf("  no wrong byte\n");
    if (o->blind)
        return wrong && board->first_wrong <= CONTROL;
    all = ways_judge(&board->ways);
    return ended && !status && !wrong && !board->error[0] &&
           (all || ran < ALL_WAYS);
}

int torture_rcache_phase(struct torture_options o, bool blind)
{
    int fd = memfd_create("torture", 0), status = 0;
    struct rcache_board *board;
    double begin = now(), ran;
    bool ended, passed;
    pid_t pid;

    if (fd < 0 || ftruncate(fd, sizeof(*board))) {
        perror("torture: board");
        return 2;
    }
    board = torture_map(fd, sizeof(*board));
    o.blind = blind;
    if (blind)
        o.seconds = CONTROL;
    printf("\nphase %s\n", blind ? "control" : "cache");
    fflush(stdout);
    pid = start(&o, fd);
    if (pid < 0) {
        perror("torture: fork");
        return 2;
    }
    ended = watch(pid, &o, board, &status);
    if (!ended) {
        kill(pid, SIGABRT); /* a core, if somebody wants it */
        waitpid(pid, NULL, 0);
    }
    ran = now() - begin;
    if (rcache_interrupted)
        printf("  interrupted after %.1f s by %s\n", ran,
               strsignal(rcache_interrupted));
    passed = judge(&o, board, ended, status, ran);
    printf("%s %s\n", passed ? "PASS" : rcache_interrupted && blind ? "-"
                                                                   : "FAIL",
           blind ? "control" : "cache");
    close(fd);
    munmap(board, sizeof(*board));
    fflush(stdout);
    return passed ? 0 : 1;
}
