/* SPDX-License-Identifier: BSD-3-Clause */
/* scripts/torture: options, and the order of the phases. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "torture.h"
#include "torture_start.h"
#include "torture_rcache.h"

static const char help[] =
"usage: scripts/torture deadlock [options]\n"
"       scripts/torture rcache [options]     (rcache --help tells of it)\n"
"\n"
"The deadlock that this library exists for. Threads hold a cache's lock and\n"
"call malloc; threads free, and the allocator gives memory back under its\n"
"own lock; the cache's handler of such releases takes the cache's lock and\n"
"calls malloc. Three phases, each in a process of its own:\n"
"  sync      the handler runs inside the release (LAPSE_INLINE). It must hang\n"
"            within 10 s; the backtraces of the culprits are printed.\n"
"  callback  the same handler, on the library's thread (LAPSE_CALLBACK)\n"
"  poll      the cache asks in its own lookups (LAPSE_POLL)\n"
"The latter two must not hang, must run no handler inside a release, and\n"
"must forget no release.\n"
"\n"
"  --seconds N     how long the callback and poll phases take, each (60)\n"
"  --threads T     holders of the lock, and as many releasers (4, up to 64)\n"
"  --seed S        of the random choices; default: another one every time\n"
"  --allocator A   glibc (default) or jemalloc (Debian: libjemalloc2)\n"
"  --mode M        all (default), sync, callback or poll\n"
"  --help          this text\n"
"\n"
"LAPSE_RECORDS=64 in the environment makes the library's queues overflow.\n"
"Exit status: 0 when all went as demanded, 1 when not, 2 for bad usage, 77\n"
"when a build with a sanitizer cannot do what is asked (jemalloc, sync).\n";

static int usage(const char *what, const char *value)
{
    fprintf(stderr, "torture: %s '%s'; see scripts/torture --help\n", what,
            value);
    return 2;
}

static int mode_of(const char *name)
{
    for (int i = 0; i < TORTURE_MODES; i++)
        if (!strcmp(name, phase_name[i]))
            return i;
    return strcmp(name, "all") ? -1 : TORTURE_MODES;
}

/* 0, or the exit status plus one. */
static int parse(int argc, char **argv, struct torture_options *options,
                 int *mode)
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
    uint64_t value;

    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        if (c == 'h') {
            fputs(help, stdout);
            return 1;
        } else if (c == 's' && torture_number(optarg, 86400, &value) && value) {
            options->seconds = (unsigned)value;
        } else if (c == 't' &&
                   torture_number(optarg, TORTURE_THREADS, &value) && value) {
            options->threads = (unsigned)value;
        } else if (c == 'r' && torture_number(optarg, UINT32_MAX, &value)) {
            options->seed = value;
        } else if (c == 'a' && (!strcmp(optarg, "glibc") ||
                                !strcmp(optarg, "jemalloc"))) {
            options->jemalloc = optarg[0] == 'j';
        } else if (c == 'm' && mode_of(optarg) >= 0) {
            *mode = mode_of(optarg);
        } else if (c == '?') { /* getopt has said what */
            return 3;
        } else {
            return 1 + usage("bad value", optarg);
        }
    }
    if (optind + 1 != argc || strcmp(argv[optind], "deadlock"))
        return 1 + usage("one scenario is wanted, 'deadlock' or 'rcache', not",
                         optind < argc ? argv[argc - 1] : "");
    return 0;
}

static bool run(const struct torture_options *options, enum torture_mode mode)
{
    printf("\nphase %s\n", phase_name[mode]);
    bool passed = phase_run(options, mode);
    printf("%s %s\n", passed ? "PASS" : "FAIL", phase_name[mode]);
    fflush(stdout);
    return passed;
}

int main(int argc, char **argv)
{
    struct torture_options options = {.seconds = 60, .threads = 4};
    int mode = TORTURE_MODES;
    uint32_t seed = 1;

    phase_enter_child(argc, argv);
    torture_rcache_enter_child(argc, argv);
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "rcache"))
            return torture_rcache_main(argc, argv);
    if (getrandom(&seed, sizeof(seed), 0) == sizeof(seed))
        options.seed = seed;
    int status = parse(argc, argv, &options, &mode);
    if (status)
        return status - 1;
    if (TORTURE_OWN_MALLOC && (options.jemalloc || mode == TORTURE_SYNC)) {
        fputs("torture: skipped: built with a sanitizer, which brings its own "
              "malloc\n", stderr);
        return 77;
    }
    printf("torture deadlock: seed %lu, %u holders and %u releasers, %u s, "
           "%s\n", (unsigned long)options.seed, options.threads,
           options.threads, options.seconds,
           options.jemalloc ? "jemalloc" : "glibc");
    printf("Failure looks like: sync that does not hang within 10 s; callback "
           "or poll where a\nthread stands still for 5 s, a handler runs "
           "inside a release, or a release is lost.\n");
    bool passed = true;
    for (int i = 0; i < TORTURE_MODES; i++)
        if (mode == TORTURE_MODES || mode == i)
            passed &= run(&options, (enum torture_mode)i);
    if (!passed)
        printf("\ntry again with --seed %lu (which fixes the choices, not the "
               "timing)\n", (unsigned long)options.seed);
    return passed ? 0 : 1;
}
