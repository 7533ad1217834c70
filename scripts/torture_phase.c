/* SPDX-License-Identifier: BSD-3-Clause */
/* One phase of scripts/torture, seen from the parent: start the child, watch
   its counters move or stand still, judge. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "torture_phase.h"
#include "torture_start.h"

#define START_LIMIT 30.0 /* seconds until all threads run */
#define SYNC_LIMIT 10.0  /* the synchronous handler hangs by then */
#define SYNC_STILL 1.5   /* all holders still for so long: hung */
#define STILL 5.0        /* any thread, or telling, for so long: hung */
#define STOP_LIMIT 10.0  /* threads end when told to */

const char *const phase_name[TORTURE_MODES] = {"sync", "callback", "poll"};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void set_environment(const struct torture_options *options,
                            enum torture_mode mode)
{
    const char *before = getenv("LD_PRELOAD");
    char preload[4096];

    if (!options->jemalloc) {
        /* Everybody wants one lock. Half of all seeds add a second arena,
           whose heaps shrink by madvise where the first one's uses brk. */
        bool two = mode != TORTURE_SYNC && options->seed % 2;
        setenv("MALLOC_ARENA_MAX", two ? "2" : "1", 1);
        return;
    }
    snprintf(preload, sizeof(preload), "libjemalloc.so.2%s%s",
             before ? ":" : "", before ? before : "");
    setenv("LD_PRELOAD", preload, 1);
    /* Dirty pages go back at once, by the thread that frees them. */
    setenv("MALLOC_CONF", "narenas:1,tcache:false,dirty_decay_ms:0,"
           "muzzy_decay_ms:0,background_thread:false", 1);
}

/* The malloc environment is read at program start, so start again. */
static pid_t start(const struct torture_options *options,
                   enum torture_mode mode, int fd)
{
    char args[6][24];
    pid_t pid = torture_fork();

    if (pid)
        return pid;
    set_environment(options, mode);
    snprintf(args[0], sizeof(args[0]), "%d", fd);
    snprintf(args[1], sizeof(args[1]), "%d", (int)mode);
    snprintf(args[2], sizeof(args[2]), "%u", options->seconds);
    snprintf(args[3], sizeof(args[3]), "%u", options->threads);
    snprintf(args[4], sizeof(args[4]), "%lu", (unsigned long)options->seed);
    snprintf(args[5], sizeof(args[5]), "%d", (int)options->jemalloc);
    execl("/proc/self/exe", "torture", "--child", args[0], args[1], args[2],
          args[3], args[4], args[5], (char *)NULL);
    perror("torture: cannot start itself again");
    _exit(1);
}

void phase_enter_child(int argc, char **argv)
{
    if (argc != 8 || strcmp(argv[1], "--child"))
        return;
    struct torture_options options = {
        .seconds = (unsigned)strtoul(argv[4], NULL, 10),
        .threads = (unsigned)strtoul(argv[5], NULL, 10),
        .seed = strtoul(argv[6], NULL, 10),
        .jemalloc = argv[7][0] == '1',
    };
    struct torture_board *board =
        torture_map(atoi(argv[2]), sizeof(*board));

    /* ld.so only warns when it cannot preload, and glibc would be tested. */
    if (options.jemalloc && !dlsym(RTLD_DEFAULT, "mallctl")) {
        snprintf(board->error, sizeof(board->error),
                 "libjemalloc.so.2 cannot be loaded; install libjemalloc2");
        exit(1);
    }
    exit(deadlock_child(&options, (enum torture_mode)atoi(argv[3]), board));
}

struct watch {
    uint64_t last[2 * TORTURE_THREADS + 1]; /* the last one: events told */
    double moved[2 * TORTURE_THREADS + 1];
    double longest; /* now: the longest that anything stands still */
    double holders; /* now: how long all holders have been doing so */
};

static uint64_t told_sum(const struct torture_board *board)
{
    return torture_get(&board->told_open) + torture_get(&board->told_closed);
}

/* Note what moved since the last look. */
static void look(struct watch *w, const struct torture_board *board,
                 bool first)
{
    double t = now();

    w->longest = 0;
    w->holders = 1e9;
    for (unsigned i = 0; i <= board->threads; i++) {
        uint64_t value = i < board->threads
                             ? torture_get(&board->thread[i].rounds)
                             : told_sum(board);
        if (first || value != w->last[i])
            w->moved[i] = t;
        w->last[i] = value;
        double still = t - w->moved[i];
        if (still > w->longest)
            w->longest = still;
        if (i < board->threads / 2 && still < w->holders)
            w->holders = still;
    }
}

static unsigned count_still(const struct watch *w, unsigned threads)
{
    unsigned n = 0;

    for (unsigned i = 0; i < threads; i++)
        n += w->moved[i] + SYNC_STILL / 2 < now();
    return n;
}

/* True when the child has ended, and how it did. */
static bool ended(pid_t pid, struct phase_result *result)
{
    int status;

    if (waitpid(pid, &status, WNOHANG) != pid)
        return false;
    if (WIFSIGNALED(status))
        snprintf(result->death, sizeof(result->death), "killed by %s",
                 strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status))
        snprintf(result->death, sizeof(result->death), "exit status %d",
                 WEXITSTATUS(status));
    return true;
}

static bool wait_running(pid_t pid, const struct torture_board *board,
                         struct phase_result *result)
{
    for (double begin = now(); now() - begin < START_LIMIT; usleep(20000)) {
        if (atomic_load_explicit(&board->running, memory_order_relaxed))
            return true;
        if (ended(pid, result))
            return false;
    }
    result->end = PHASE_NOT_STARTED;
    return false;
}

/* Holders that stand still are the hang: they never get the cache lock again.
   Releasers stand still too where the allocator's lock is part of it. */
static bool hung(const struct watch *w, enum torture_mode mode,
                 const struct torture_board *board,
                 struct phase_result *result)
{
    if (mode == TORTURE_SYNC ? w->holders < SYNC_STILL : w->longest < STILL)
        return false;
    result->still = count_still(w, board->threads);
    result->worked = result->ran - w->holders;
    return true;
}

static enum phase_end watch(pid_t pid, const struct torture_options *options,
                            enum torture_mode mode,
                            struct torture_board *board,
                            struct phase_result *result)
{
    double begin = now();
    double limit = mode == TORTURE_SYNC ? SYNC_LIMIT : options->seconds;
    struct watch w;

    for (bool first = true; result->ran < limit; first = false) {
        usleep(10000);
        if (ended(pid, result))
            return PHASE_ENDED;
        look(&w, board, first);
        if (w.longest > result->longest_still)
            result->longest_still = w.longest;
        result->ran = now() - begin;
        if (hung(&w, mode, board, result))
            return PHASE_HUNG;
    }
    if (mode == TORTURE_SYNC)
        return PHASE_NO_HANG;
    atomic_store_explicit(&board->stop, 1, memory_order_relaxed);
    for (begin = now(); now() - begin < STOP_LIMIT; usleep(10000))
        if (ended(pid, result))
            return PHASE_ENDED;
    return PHASE_NOT_STOPPED;
}

bool phase_run(const struct torture_options *options, enum torture_mode mode)
{
    struct phase_result result = {0};
    int fd = memfd_create("torture", 0);

    if (fd < 0 || ftruncate(fd, sizeof(struct torture_board))) {
        perror("torture: board");
        return false;
    }
    struct torture_board *board = torture_map(fd, sizeof(*board));
    board->threads = 2 * options->threads;
    fflush(stdout);
    pid_t pid = start(options, mode, fd);
    if (pid < 0) {
        perror("torture: fork");
        return false;
    }
    if (wait_running(pid, board, &result))
        result.end = watch(pid, options, mode, board, &result);
    bool passed = phase_judge(options, mode, board, pid, &result);
    if (result.end != PHASE_ENDED) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    munmap(board, sizeof(*board));
    close(fd);
    return passed;
}
