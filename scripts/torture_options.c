/* SPDX-License-Identifier: BSD-3-Clause */
#include "torture_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const struct option longs[] = {
    {"seconds", required_argument, NULL, 's'},
    {"threads", required_argument, NULL, 't'},
    {"seed", required_argument, NULL, 'r'},
    {"allocator", required_argument, NULL, 'a'},
    {"mode", required_argument, NULL, 'm'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static bool number(const char *text, uint64_t least, uint64_t most,
                   uint64_t *out)
{
    char *end;

    *out = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && !*end && *out >= least &&
           *out <= most;
}

static bool take(struct torture_options *o,
                 const struct torture_scenario *scenario, int option,
                 const char *value)
{
    bool good = false;
    uint64_t n = 0;

    switch (option) {
    case 's':
        good = number(value, 1, 86400, &n);
        o->seconds = (unsigned)n;
        break;
    case 't':
        good = number(value, 1, scenario->threads_max, &n);
        o->threads = (unsigned)n;
        break;
    case 'r':
        good = number(value, 0, UINT32_MAX, &n);
        o->seed = n;
        break;
    case 'a':
        good = !strcmp(value, "glibc") || !strcmp(value, "jemalloc");
        o->jemalloc = value[0] == 'j';
        break;
    case 'm':
        good = scenario->take_mode(value);
        break;
    }
    return good;
}

static int usage(const struct torture_scenario *scenario, const char *what,
                 const char *value)
{
    fprintf(stderr, "torture: %s '%s'; see scripts/torture %s --help\n", what,
            value, scenario->name);
    return 2;
}

int torture_options_read(struct torture_options *o,
                         const struct torture_scenario *scenario, int argc,
                         char **argv)
{
    uint32_t seed = 1;

    if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
        seed = 1;
    *o = (struct torture_options){.seconds = 60, .threads = 4, .seed = seed};
    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        if (c == 'h') {
            fputs(scenario->help, stdout);
            return 0;
        }
        if (c == '?') /* getopt has said what */
            return 2;
        if (!take(o, scenario, c, optarg))
            return usage(scenario, "bad value", optarg);
    }
    if (optind + 1 != argc || strcmp(argv[optind], scenario->name))
        return usage(scenario,
                     "one scenario is wanted, 'deadlock' or 'rcache', not",
                     optind < argc ? argv[argc - 1] : "");
    return -1;
}

int torture_needs_malloc(void)
{
    fputs("torture: skipped: built with a sanitizer, which brings its own "
          "malloc\n", stderr);
    return 77;
}

void torture_say_seed(const struct torture_options *o)
{
    printf("\ntry again with --seed %lu (which fixes the choices, not the "
           "timing)\n", (unsigned long)o->seed);
}
