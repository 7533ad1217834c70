/* SPDX-License-Identifier: BSD-3-Clause */
/* scripts/torture: which scenario, and the order of the phases. */
#include <string.h>

#include "torture.h"
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

static int mode = TORTURE_MODES; /* all */

static bool take_mode(const char *name)
{
    for (mode = 0; mode < TORTURE_MODES; mode++)
        if (!strcmp(name, phase_name[mode]))
            return true;
    return !strcmp(name, "all");
}

static const struct torture_scenario scenario = {
    .name = "deadlock",
    .help = help,
    .threads_max = TORTURE_THREADS,
    .take_mode = take_mode,
};

static bool run(const struct torture_options *options, enum torture_mode which)
{
    printf("\nphase %s\n", phase_name[which]);
    bool passed = phase_run(options, which);
    printf("%s %s\n", passed ? "PASS" : "FAIL", phase_name[which]);
    fflush(stdout);
    return passed;
}

int main(int argc, char **argv)
{
    struct torture_options options;

    phase_enter_child(argc, argv);
    torture_rcache_enter_child(argc, argv);
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "rcache"))
            return torture_rcache_main(argc, argv);
    int status = torture_options_read(&options, &scenario, argc, argv);
    if (status >= 0)
        return status;
    if (TORTURE_OWN_MALLOC && (options.jemalloc || mode == TORTURE_SYNC))
        return torture_needs_malloc();
    printf("torture deadlock: seed %lu, %u holders and %u releasers, %u s, "
           "%s\n", (unsigned long)options.seed, options.threads,
           options.threads, options.seconds,
           torture_allocator(&options));
    printf("Failure looks like: sync that does not hang within 10 s; callback "
           "or poll where a\nthread stands still for 5 s, a handler runs "
           "inside a release, or a release is lost.\n");
    bool passed = true;
    for (int i = 0; i < TORTURE_MODES; i++)
        if (mode == TORTURE_MODES || mode == i)
            passed &= run(&options, (enum torture_mode)i);
    if (!passed)
        torture_say_seed(&options);
    return passed ? 0 : 1;
}
