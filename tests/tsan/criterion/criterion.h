/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stand-in for Criterion, used with SAN=thread only: BoxFort, the sandbox
 * that the real one runs each test in, does not start under ThreadSanitizer
 * (it maps the test anew where the shadow memory has to be). Here a test runs
 * in a child made by fork(), which the sanitizer knows how to follow. There is
 * what tests/test_*.c use and no more; other options, arguments of the program
 * and parameterized tests are not. One file of tests makes one program.
 */
#ifndef LAPSE_TESTS_TSAN_CRITERION_H
#define LAPSE_TESTS_TSAN_CRITERION_H
#pragma GCC system_header /* as the real one: compares signed with unsigned */

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CR_FAILED 1
#define CR_SKIPPED 77 /* a sanitizer that halts says 66 */

struct cr_options {
    void (*init)(void);
    void (*fini)(void);
    double timeout; /* seconds */
};

/* A test, or a suite if it has no function. */
struct cr_test {
    const char *suite, *name;
    void (*run)(void);
    struct cr_options options;
    struct cr_test *next;
};

static struct cr_test *cr_first, **cr_last = &cr_first;
static const struct cr_test *cr_now;
static _Atomic int cr_failures;

#define CR_REGISTER(id, suite, name, function, ...)                           \
    static __attribute__((constructor)) void cr_register_##id(void)           \
    {                                                                         \
        static struct cr_test t = {suite, name, function, {__VA_ARGS__},      \
                                   NULL};                                     \
        *cr_last = &t;                                                        \
        cr_last = &t.next;                                                    \
    }                                                                         \
    struct cr_test
#define TestSuite(s, ...) CR_REGISTER(suite_##s, #s, NULL, NULL, __VA_ARGS__)
#define Test(s, n, ...)                                                       \
    static void cr_run_##s##_##n(void);                                       \
    CR_REGISTER(s##_##n, #s, #n, cr_run_##s##_##n, __VA_ARGS__);              \
    static void cr_run_##s##_##n(void)

static __attribute__((format(printf, 5, 6))) void
cr_fail(bool fatal, const char *file, int line, const char *what,
        const char *format, ...)
{
    char message[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    dprintf(2, "[FAIL] %s::%s: %s:%d: %s:%s\n", cr_now->suite, cr_now->name,
            file, line, what, message);
    cr_failures++;
    if (fatal)
        _exit(CR_FAILED);
}

#define CR_CHECK(fatal, what, holds, ...)                                     \
    do {                                                                      \
        if (!(holds))                                                         \
            cr_fail(fatal, __FILE__, __LINE__, what, " " __VA_ARGS__);        \
    } while (0)
#define CR_IS(fatal, a, ...) CR_CHECK(fatal, #a, a, __VA_ARGS__)
#define CR_NOT(fatal, a, ...) CR_CHECK(fatal, "not " #a, !(a), __VA_ARGS__)
#define CR_TWO(fatal, a, op, b, ...)                                          \
    CR_CHECK(fatal, #a " " #op " " #b, (a)op(b), __VA_ARGS__)
#define CR_STR(fatal, a, b, ...)                                              \
    CR_CHECK(fatal, #a " is " #b, !strcmp(a, b), __VA_ARGS__)
#define CR_ARR(fatal, a, b, size, ...)                                        \
    CR_CHECK(fatal, #a " is " #b, !memcmp(a, b, size), __VA_ARGS__)

#define cr_assert(a, ...) CR_IS(true, a, __VA_ARGS__)
#define cr_assert_not(a, ...) CR_NOT(true, a, __VA_ARGS__)
#define cr_assert_null(a, ...) CR_TWO(true, a, ==, NULL, __VA_ARGS__)
#define cr_assert_not_null(a, ...) CR_TWO(true, a, !=, NULL, __VA_ARGS__)
#define cr_assert_eq(a, b, ...) CR_TWO(true, a, ==, b, __VA_ARGS__)
#define cr_assert_neq(a, b, ...) CR_TWO(true, a, !=, b, __VA_ARGS__)
#define cr_assert_lt(a, b, ...) CR_TWO(true, a, <, b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) CR_TWO(true, a, <=, b, __VA_ARGS__)
#define cr_assert_gt(a, b, ...) CR_TWO(true, a, >, b, __VA_ARGS__)
#define cr_assert_geq(a, b, ...) CR_TWO(true, a, >=, b, __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) CR_STR(true, a, b, __VA_ARGS__)
#define cr_assert_str_empty(a, ...) CR_STR(true, a, "", __VA_ARGS__)
#define cr_assert_arr_eq(a, b, n, ...) CR_ARR(true, a, b, n, __VA_ARGS__)
#define cr_assert_fail(...) CR_CHECK(true, "reached", false, __VA_ARGS__)

#define cr_expect(a, ...) CR_IS(false, a, __VA_ARGS__)
#define cr_expect_not(a, ...) CR_NOT(false, a, __VA_ARGS__)
#define cr_expect_null(a, ...) CR_TWO(false, a, ==, NULL, __VA_ARGS__)
#define cr_assert_float_eq(a, b, by, ...)                                     \
    CR_CHECK(true, #a " is " #b, (a) - (b) <= (by) && (b) - (a) <= (by),       \
             __VA_ARGS__)
#define cr_expect_eq(a, b, ...) CR_TWO(false, a, ==, b, __VA_ARGS__)
#define cr_expect_neq(a, b, ...) CR_TWO(false, a, !=, b, __VA_ARGS__)
#define cr_expect_lt(a, b, ...) CR_TWO(false, a, <, b, __VA_ARGS__)
#define cr_expect_gt(a, b, ...) CR_TWO(false, a, >, b, __VA_ARGS__)
#define cr_expect_geq(a, b, ...) CR_TWO(false, a, >=, b, __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) CR_STR(false, a, b, __VA_ARGS__)
#define cr_expect_arr_eq(a, b, n, ...) CR_ARR(false, a, b, n, __VA_ARGS__)

#define cr_skip(why)                                                          \
    do {                                                                      \
        dprintf(2, "skip: %s::%s: %s\n", cr_now->suite, cr_now->name, why);   \
        _exit(CR_SKIPPED);                                                    \
    } while (0)

/* In the child. */
static void cr_run(const struct cr_test *test)
{
    struct cr_options o = test->options;

    cr_now = test;
    for (const struct cr_test *t = cr_first; t; t = t->next)
        if (!t->run && !strcmp(t->suite, test->suite)) {
            o.init = o.init ? o.init : t->options.init;
            o.fini = o.fini ? o.fini : t->options.fini;
            o.timeout = o.timeout ? o.timeout : t->options.timeout;
        }
    if (o.timeout)
        alarm((unsigned)o.timeout);
    if (o.init)
        o.init();
    test->run();
    if (o.fini)
        o.fini();
    exit(cr_failures ? CR_FAILED : 0);
}

static void *cr_nothing(void *arg)
{
    return arg;
}

int main(void)
{
    int tested = 0, failing = 0, crashing = 0;
    pthread_t thread;

    /* The sanitizer adds one of its own to the first: not to a test's. */
    if (!pthread_create(&thread, NULL, cr_nothing, NULL))
        pthread_join(thread, NULL);
    for (const struct cr_test *t = cr_first; t; t = t->next) {
        pid_t pid;
        int status;

        if (!t->run)
            continue;
        fflush(NULL);
        pid = fork();
        if (!pid)
            cr_run(t);
        while (waitpid(pid, &status, 0) < 0)
            if (errno != EINTR) {
                perror("criterion.h");
                return 1;
            }
        if (WIFEXITED(status) && WEXITSTATUS(status) == CR_SKIPPED)
            continue;
        tested++;
        failing += status != 0;
        if (WIFEXITED(status) && WEXITSTATUS(status) <= CR_FAILED)
            continue;
        crashing += status != 0;
        dprintf(2, "[FAIL] %s::%s: %s %d\n", t->suite, t->name,
                WIFEXITED(status) ? "exit status" : "signal",
                WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    }
    dprintf(2,
            "[====] Synthesis: Tested: %d | Passing: %d | Failing: %d | "
            "Crashing: %d \n",
            tested, tested - failing, failing, crashing);
    return failing || !tested;
}

#endif
