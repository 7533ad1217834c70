/* SPDX-License-Identifier: BSD-3-Clause */
/* scripts/torture rcache: what it does, and in which order. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "torture.h"
#include "torture_rcache.h"

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

static bool modes[2] = {true, true}; /* cache, control */

static bool take_mode(const char *name)
{
    bool all = !strcmp(name, "all");

    modes[0] = all || !strcmp(name, "cache");
    modes[1] = all || !strcmp(name, "control");
    return modes[0] || modes[1];
}

static const struct torture_scenario scenario = {
    .name = "rcache",
    .help = help,
    .threads_max = RCACHE_THREADS,
    .take_mode = take_mode,
};

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
    struct torture_options o;
    int status = torture_options_read(&o, &scenario, argc, argv);

    if (status >= 0)
        return status;
    if (TORTURE_OWN_MALLOC && o.jemalloc)
        return torture_needs_malloc();
    status = torture_rcache_probe(&o);
    if (status)
        return status;
    printf("torture rcache: seed %lu, %u workers, %u s, %s\n",
           (unsigned long)o.seed, o.threads, o.seconds,
           torture_allocator(&o));
    stop_for(SIGINT);
    stop_for(SIGTERM);
    stop_for(SIGHUP);
    status = modes[0] ? torture_rcache_phase(o, false) : 0;
    if (modes[1] && status < 2 && !rcache_interrupted)
        status |= torture_rcache_phase(o, true);
    if (rcache_interrupted)
        raise(rcache_interrupted);
    if (status)
        torture_say_seed(&o);
    return status;
}
