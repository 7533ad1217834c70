/* SPDX-License-Identifier: BSD-3-Clause */
#include "shim/log.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int from, old;
static char got[4096], prefix[32];

/* A pipe of packets: one read returns what one write wrote. */
static void start(void)
{
    int p[2];

    cr_assert_eq(pipe2(p, O_DIRECT | O_NONBLOCK), 0);
    from = p[0];
    old = dup(2);
    dup2(p[1], 2);
    snprintf(prefix, sizeof(prefix), "lapse[%d]: ", (int)getpid());
}

/* What came after the prefix, by one write. */
static const char *line(void)
{
    ssize_t n = read(from, got, sizeof(got) - 1);
    char more;
    int again = (int)read(from, &more, 1);

    dup2(old, 2); /* for criterion */
    cr_assert_gt(n, 0);
    got[n] = 0;
    cr_assert_eq(again, -1, "more than one write");
    cr_assert(!strncmp(got, prefix, strlen(prefix)), "%s", got);
    return got + strlen(prefix);
}

Test(log, prints_every_format, .init = start)
{
    log_warn("%s|%d|%d|%u|%x|%lu|%lx|%zu|%p|%%", "text", -5, INT32_MIN,
             UINT32_MAX, 0xbeefu, UINT64_MAX, (unsigned long)UINT64_MAX,
             (size_t)0, (void *)0x1234);
    cr_assert_str_eq(line(), "text|-5|-2147483648|4294967295|beef|"
                             "18446744073709551615|ffffffffffffffff|0|"
                             "0x1234|%\n");
}

Test(log, prints_a_bare_text_and_a_null, .init = start)
{
    const char *volatile none = NULL; /* or the compiler objects */

    log_warn("100%% of %s", none);
    cr_assert_str_eq(line(), "100% of (null)\n");
}

Test(log, cuts_a_long_line, .init = start)
{
    static char much[1000];

    memset(much, 'x', sizeof(much) - 1);
    log_warn("%s%s", much, much);
    line();
    cr_assert_eq(strlen(got), 400);
    cr_assert_eq(got[398], 'x');
    cr_assert_eq(got[399], '\n', "cut, but still a line");
}

Test(log, keeps_errno, .init = start)
{
    int closed = dup(old);

    errno = ERANGE;
    log_warn("fine");
    cr_assert_eq(errno, ERANGE);
    line();
    close(2);
    errno = ERANGE;
    log_warn("to nobody");
    cr_assert_eq(errno, ERANGE);
    dup2(closed, 2);
}

/* SIGPIPE would end the test, waiting its time limit. */
Test(log, survives_a_broken_pipe, .init = start)
{
    sigset_t pending;

    close(from);
    log_warn("to nobody");
    dup2(old, 2);
    sigpending(&pending);
    cr_assert_eq(sigismember(&pending, SIGPIPE), 0);
}

/* One that was pending before is the program's. */
Test(log, leaves_a_pending_signal, .init = start)
{
    sigset_t pipe_only, pending;

    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigprocmask(SIG_BLOCK, &pipe_only, NULL);
    raise(SIGPIPE);
    close(from);
    log_warn("to nobody");
    dup2(old, 2);
    sigpending(&pending);
    cr_assert_eq(sigismember(&pending, SIGPIPE), 1);
}

Test(log, does_not_wait_for_a_full_pipe, .timeout = 30)
{
    int p[2], keep = dup(2);
    static char much[4096];

    cr_assert_eq(pipe2(p, O_NONBLOCK), 0);
    while (write(p[1], much, sizeof(much)) > 0)
        ;
    fcntl(p[1], F_SETFL, 0);
    dup2(p[1], 2);
    log_warn("no room");
    dup2(keep, 2);
}

Test(log, survives_a_file_limit)
{
    int keep = dup(2), fd = fileno(tmpfile());
    struct stat now;

    setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, RLIM_INFINITY});
    dup2(fd, 2);
    log_warn("not one byte may be written");
    dup2(keep, 2);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
    fstat(fd, &now);
    cr_assert_eq(now.st_size, 0);
}

/* The program closed stderr, and its next file got the number. */
Test(log, writes_nothing_into_the_programs_file)
{
    int keep = dup(2), fd = fileno(tmpfile());
    struct stat now;

    log_start();
    close(2);
    log_warn("to nobody");
    dup2(fd, 2);
    log_warn("to a file of the program");
    dup2(keep, 2);
    fstat(fd, &now);
    cr_assert_eq(now.st_size, 0);
}
