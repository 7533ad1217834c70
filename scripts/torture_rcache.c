/* SPDX-License-Identifier: BSD-3-Clause */
/* scripts/torture rcache: options, and the parent that watches. */
#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "torture.h"
#include "torture_rcache.h"
#include "torture_start.h"

#define STILL 10.0     /* any thread, for so long: hung */
#define CONTROL 10     /* seconds in which the control must find something */

static const char help[] =
"usage: scripts/torture rcache [options]\n"
"\n"
"The registration cache, on buffers that the kernel really pins (io_uring\n"
"fixed buffers). Threads fill memory, let the kernel write it to a file and\n"
"read it back through the registration that the cache names, compare every\n"
"byte, and release the memory in every way there is, while others trim the\n"
"heap, fork and send signals. Two phases, each in a process of its own:\n"
"  cache     no wrong byte, no error, no hang\n"
"  control   the cache does not look for releases: there must be a wrong byte\n"
"            within 10 s, or this test could not find any\n"
"\n"
"  --seconds N     how long the cache phase takes (60)\n"
"  --threads T     workers (4, up to 32)\n"
"  --seed S        of the random choices; default: another one every time.\n"
"                  Of every three, one lets the cache merge registrations.\n"
"  --allocator A   glibc (default) or jemalloc (Debian: libjemalloc2)\n"
"  --mode M        all (default), cache or control\n"
"  --help          this text\n"
"\n"
"Exit status: 0 when all went as demanded, 1 when not, 2 for bad usage, 77\n"
"when it cannot run here (a build with a sanitizer).\n";

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void torture_rcache_enter_child(int argc, char **argv)
{
    static char library[4096];

    if (argc != 6 || strcmp(argv[1], "--rcache-child"))
        return;
    rcache_board = torture_map(atoi(argv[2]), sizeof(*rcache_board));
    rcache_options.threads = (unsigned)atoi(argv[3]);
    rcache_options.seed = strtoull(argv[4], NULL, 10);
    rcache_options.blind = argv[5][0] == '1';
    if (readlink("/proc/self/exe", library, sizeof(library) - 32) < 0)
        exit(2);
    strcat(dirname(library), "/torture-library.so");
    blocks_start(library);
    exit(torture_rcache_child());
}

static pid_t start(const struct rcache_options *o, int fd)
{
    char args[3][24];
    pid_t parent = getpid(), pid = fork();

    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    if (o->jemalloc) {
        setenv("LD_PRELOAD", "libjemalloc.so.2", 1);
        setenv("MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0", 1);
    } else {
        setenv("MALLOC_ARENA_MAX", "2", 1);
        setenv("MALLOC_TRIM_THRESHOLD_", "65536", 1);
    }
    snprintf(args[0], sizeof(args[0]), "%d", fd);
    snprintf(args[1], sizeof(args[1]), "%u", o->threads);
    snprintf(args[2], sizeof(args[2]), "%lu", (unsigned long)o->seed);
    execl("/proc/self/exe", "torture", "--rcache-child", args[0], args[1],
          args[2], o->blind ? "1" : "0", (char *)NULL);
    _exit(1);
}

/* The longest that a thread has been standing still. */
static double longest(const struct rcache_options *o,
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
static bool watch(pid_t pid, const struct rcache_options *o,
                  struct rcache_board *board, int *status)
{
    uint64_t last[RCACHE_THREADS + RCACHE_DISTURBERS] = {0};
    double moved[RCACHE_THREADS + RCACHE_DISTURBERS] = {0};
    double begin = now(), stopped = 0;

    for (;; usleep(20000)) {
        if (waitpid(pid, status, WNOHANG) == pid)
            return true;
        if (!stopped && (now() - begin > o->seconds ||
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
static bool judge(const struct rcache_options *o, struct rcache_board *board,
                  bool ended, int status)
{
    uint64_t wrong = torture_get(&board->wrong);

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
    return ended && !status && !wrong && !board->error[0];
}

static int phase(struct rcache_options o, bool blind)
{
    int fd = memfd_create("torture", 0), status = 0;
    struct rcache_board *board;
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
    passed = judge(&o, board, ended, status);
    printf("%s %s\n", passed ? "PASS" : "FAIL", blind ? "control" : "cache");
    close(fd);
    munmap(board, sizeof(*board));
    return passed ? 0 : 1;
}

static int usage(const char *value)
{
    fprintf(stderr, "torture: bad value '%s'; see scripts/torture rcache "
            "--help\n", value);
    return 2;
}

/* -1, or the exit status. */
static int parse(int argc, char **argv, struct rcache_options *o,
                 bool *modes)
{
    static const struct option longs[] = {
        {"seconds", required_argument, NULL, 's'},
        {"threads", required_argument, NULL, 't'},
        {"seed", required_argument, NULL, 'r'},
        {"allocator", required_argument, NULL, 'a'},
        {"mode", required_argument, NULL, 'm'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    uint64_t n;

    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        if (c == 'h') {
            fputs(help, stdout);
            return 0;
        } else if (c == 's' && torture_number(optarg, 86400, &n) && n) {
            o->seconds = (unsigned)n;
        } else if (c == 't' && torture_number(optarg, RCACHE_THREADS, &n) &&
                   n) {
            o->threads = (unsigned)n;
        } else if (c == 'r' && torture_number(optarg, UINT32_MAX, &n)) {
            o->seed = n;
        } else if (c == 'a' && (!strcmp(optarg, "glibc") ||
                                !strcmp(optarg, "jemalloc"))) {
            o->jemalloc = optarg[0] == 'j';
        } else if (c == 'm' &&
                   (!strcmp(optarg, "cache") || !strcmp(optarg, "control"))) {
            modes[optarg[1] == 'a'] = false; /* c-a-che: not control */
        } else if (c == '?') {
            return 2;
        } else if (c != 'm' || strcmp(optarg, "all")) {
            return usage(optarg);
        }
    }
    return optind + 1 == argc ? -1 : usage(argv[argc - 1]);
}

int torture_rcache_main(int argc, char **argv)
{
    struct rcache_options o = {.seconds = 60, .threads = 4};
    bool modes[2] = {true, true}; /* cache, control */
    uint32_t seed = 1;
    int status;

    if (getrandom(&seed, sizeof(seed), 0) == sizeof(seed))
        o.seed = seed;
    status = parse(argc, argv, &o, modes);
    if (status >= 0)
        return status;
    if (TORTURE_OWN_MALLOC) {
        fputs("torture: skipped: built with a sanitizer, whose malloc gives "
              "memory back by system calls of its own, which nobody sees\n",
              stderr);
        return 77;
    }
    printf("torture rcache: seed %lu, %u workers, %u s, %s\n",
           (unsigned long)o.seed, o.threads, o.seconds,
           o.jemalloc ? "jemalloc" : "glibc");
    status = modes[0] ? phase(o, false) : 0;
    if (modes[1] && status < 2)
        status |= phase(o, true);
    if (status)
        printf("\ntry again with --seed %lu (which fixes the choices, not the "
               "timing)\n", (unsigned long)o.seed);
    return status;
}
