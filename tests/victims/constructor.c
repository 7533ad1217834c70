/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Linked against lib_early.so, whose constructor releases memory before main;
 * so do this program's own constructors, the earliest there can be.
 */
#include "victim.h"

extern int lib_early_good;
static int preinit_good, constructor_good;

static int release(void)
{
    char *p = fresh(4 * PAGE);

    churn(1 << 20);
    return madvise(p, PAGE, MADV_DONTNEED) == 0 && p[0] == 0 &&
           munmap(p, 4 * PAGE) == 0 && !is_mapped(p);
}

static void preinit(int argc, char **argv, char **environment)
{
    (void)argc;
    (void)argv;
    (void)environment;
    preinit_good = release();
}
__attribute__((section(".preinit_array"), used))
static void (*const preinit_entry)(int, char **, char **) = preinit;

__attribute__((constructor(101))) static void begin(void)
{
    constructor_good = release();
}

__attribute__((destructor)) static void end(void)
{
    if (!release())
        _exit(1);
}

int main(void)
{
    check(preinit_good, "released in preinit_array");
    check(lib_early_good, "released in a library's constructor");
    check(constructor_good, "released in a constructor");
    check(release(), "released in main");
    return victim_end();
}
