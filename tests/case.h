/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the case_* programs share: each reproduces one fault that others had
 * with hooks on the release of memory, and says what must hold here.
 * Most run with the library preloaded and are not linked with it, so that the
 * same program without it is the control (CASE_PRELOADED); others ask for
 * something that is known to fail. Run so, with --expect-fault, every must()
 * has to fail, or the program shows nothing. tests/cases.sh does both.
 */
#ifndef CASE_H
#define CASE_H

#ifdef CASE_PRELOADED
#pragma weak lapse_subscribe
#pragma weak lapse_unsubscribe
#pragma weak lapse_watch
#pragma weak lapse_unwatch
#pragma weak lapse_poll
#pragma weak lapse_sync
#pragma weak lapse_coverage
#endif

#include "api.h"

#define HANG 10 /* seconds: what takes longer hangs */

static bool expect_fault;

static inline bool with_library(void)
{
#ifdef CASE_PRELOADED
    return lapse_subscribe != NULL;
#else
    return true;
#endif
}

/* What the case asks for; in the control it has to fail. */
__attribute__((format(printf, 2, 3), unused))
static void must(bool good, const char *format, ...)
{
    char text[256];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (expect_fault)
        check(!good, "as it must, it fails: %s", text);
    else
        check(good, "%s", text);
}

/* What can only be asked where the library is. */
#define told(good, ...) \
    do { \
        if (with_library()) \
            check(good, __VA_ARGS__); \
    } while (0)

/* Returns the arguments that are left: argv[1] is the first of them. */
__attribute__((unused))
static char **case_begin(char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(HANG);
    if (argv[1] && !strcmp(argv[1], "--expect-fault")) {
        expect_fault = true;
        argv++;
    }
    return argv;
}

/* For those that run with the library preloaded, and without as control. */
__attribute__((unused))
static char **case_begin_preloaded(char **argv)
{
    argv = case_begin(argv);
    if (with_library() == expect_fault) {
        fprintf(stderr, "the library is %spreloaded\n",
                expect_fault ? "" : "not ");
        _exit(2);
    }
    return argv;
}

/* Of all rows of lapse_coverage() for a path: is any said to be not seen? */
__attribute__((unused))
static bool said_uncovered(const char *path)
{
    struct lapse_coverage rows[64];
    int n = with_library() ? lapse_coverage(rows, 64) : 0;

    for (int i = 0; i < n && i < 64; i++)
        if (!strcmp(rows[i].path, path) &&
            rows[i].mechanism == LAPSE_UNCOVERED) {
            printf("        %s in %s: %s\n", path, rows[i].where,
                   rows[i].detail);
            return true;
        }
    return false;
}

#endif
