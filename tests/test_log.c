/* SPDX-License-Identifier: BSD-3-Clause */
#include "shim/log.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
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
