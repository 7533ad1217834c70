/* SPDX-License-Identifier: BSD-3-Clause */
/* What both scenarios of scripts/torture are told on the command line. */
#ifndef LAPSE_TORTURE_OPTIONS_H
#define LAPSE_TORTURE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct torture_options {
    unsigned seconds; /* of a phase */
    unsigned threads;
    uint64_t seed;
    bool jemalloc;
    bool blind; /* a phase of rcache: the cache does not look for releases */
};

struct torture_scenario {
    const char *name, *help;
    unsigned threads_max;
    bool (*take_mode)(const char *name); /* false: there is no such mode */
};

/* A seed of its own if none is given. Returns -1, or the exit status. */
int torture_options_read(struct torture_options *o,
                         const struct torture_scenario *scenario, int argc,
                         char **argv);

/* 77, when its reason was printed. */
int torture_needs_malloc(void);

/* What to say at the end of a run that failed. */
void torture_say_seed(const struct torture_options *o);

static inline const char *torture_allocator(const struct torture_options *o)
{
    return o->jemalloc ? "jemalloc" : "glibc";
}

#endif
