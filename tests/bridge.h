/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of bridges/jemalloc.c share: they run themselves again with
 * jemalloc preloaded, and take the truth from /proc/self/pagemap. */
#ifndef BRIDGE_H
#define BRIDGE_H

#include <dlfcn.h>
#include <fcntl.h>

#include "api.h"
#include "bridges/lapse_jemalloc.h"

#define MIB (1ul << 20)

static int pagemap = -1;

/* 0 when nothing is there; without root a page has number 0, 1 is said. */
__attribute__((unused))
static uint64_t pfn(const void *p)
{
    uint64_t e = 0;

    need(pread(pagemap, &e, sizeof e, (off_t)((uintptr_t)p / PAGE * 8)) ==
             sizeof e,
         "pagemap");
    if (!(e >> 63))
        return 0;
    e &= (1ul << 55) - 1;
    return e ? e : 1;
}

__attribute__((unused))
static size_t resident(const char *p, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i += PAGE)
        n += pfn(p + i) != 0;
    return n * PAGE;
}

__attribute__((unused))
static struct lapse_jemalloc_stats stats(void)
{
    struct lapse_jemalloc_stats s = {.size = sizeof s};

    need(lapse_jemalloc_stats(&s) == 0, "stats");
    return s;
}

__attribute__((unused))
static bool all(const char *p, size_t len, char c)
{
    for (size_t i = 0; i < len; i++)
        if (p[i] != c)
            return false;
    return true;
}

/* Runs `cases` in this program, run again with jemalloc preloaded. */
static int with_jemalloc(int argc, char **argv, void (*cases)(void))
{
    if (argc == 1 || strcmp(argv[1], "jemalloc")) {
        setenv("LD_PRELOAD", "libjemalloc.so.2", 1);
        setenv("MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0", 1);
        fflush(stdout);
        execl(argv[0], argv[0], "jemalloc", (char *)NULL);
        return 2;
    }
    if (!dlsym(RTLD_DEFAULT, "mallctl")) {
        puts("skip: no libjemalloc.so.2 here");
        return 77;
    }
    pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    need(pagemap >= 0, "pagemap");
    cases();
    return api_end();
}

#endif
