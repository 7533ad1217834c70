/* SPDX-License-Identifier: BSD-3-Clause */
/* scripts/torture rcache: options, and the parent that watches. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "torture.h"
#include "torture_rcache.h"
#include "torture_start.h"

static const char help[] =
"usage: scripts/torture rcache [options]\n"
"\n"
"The registration cache, on buffers that the kernel really pins (io_uring\n"
"fixed buffers). Threads fill memory, let the kernel write it to a file and\n"
"read it back through the registration that the cache names, compare every\n"
"byte, and release the memory in every way there is, while others trim the\n"
"heap, fork and send signals. Two phases, each in a process of its own:\n"
"  cache     no wrong byte, no error, no hang; in 60 s or more, every way of\n"
"            releasing memory was gone, or the reason is printed why not\n"
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
"Built with a sanitizer, memory of malloc and stacks are left out: there they\n"
"are the sanitizer's, which gives memory back by system calls of its own.\n"
"The first SIGINT or SIGTERM ends a phase and prints what it found.\n"
"Exit status: 0 when all went as demanded; 1 when not; 2 for bad usage; 77\n"
"when it cannot run here, and why is printed: no io_uring, too little memory\n"
"that may be pinned, or jemalloc in a build with a sanitizer.\n";

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
            modes[0] = optarg[1] == 'a'; /* c-a-che */
            modes[1] = !modes[0];
        } else if (c == 'm' && !strcmp(optarg, "all")) {
            modes[0] = modes[1] = true;
        } else if (c == '?') {
            return 2;
        } else {
            return usage(optarg);
        }
    }
    return optind + 1 == argc ? -1 : usage(argv[argc - 1]);
}

static void interrupt(int number)
{
    rcache_interrupted = number;
}

/* The first one ends the phase in good order, the next one at once. */
static void stop_for(int number)
{
    struct sigaction action = {.sa_handler = interrupt,
                               .sa_flags = SA_RESETHAND};
    struct sigaction before;

    if (!sigaction(number, NULL, &before) && before.sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
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
    if (TORTURE_OWN_MALLOC && o.jemalloc) {
        fputs("torture: skipped: built with a sanitizer, which brings its own "
              "malloc\n", stderr);
        return 77;
    }
    status = torture_rcache_probe(&o);
    if (status)
        return status;
    printf("torture rcache: seed %lu, %u workers, %u s, %s\n",
           (unsigned long)o.seed, o.threads, o.seconds,
           o.jemalloc ? "jemalloc" : "glibc");
    stop_for(SIGINT);
    stop_for(SIGTERM);
    stop_for(SIGHUP);
    status = modes[0] ? torture_rcache_phase(o, false) : 0;
    if (modes[1] && status < 2 && !rcache_interrupted)
        status |= torture_rcache_phase(o, true);
    if (rcache_interrupted)
        raise(rcache_interrupted);
    if (status)
        printf("\ntry again with --seed %lu (which fixes the choices, not the "
               "timing)\n", (unsigned long)o.seed);
    return status;
}
