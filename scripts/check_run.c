/* SPDX-License-Identifier: BSD-3-Clause */
/* A child for each row: one that crashes or hangs is a result, not the end. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { LIMIT_MS = 10000 };

static long now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Its messages are those of the first child, which is asked for no row. */
static _Noreturn void become_child(int index, int out, const char *preload,
                                   const char *allocator)
{
    char number[16], fd[16];
    int null = open("/dev/null", O_RDWR);

    snprintf(number, sizeof(number), "%d", index);
    snprintf(fd, sizeof(fd), "%d", out);
    fcntl(out, F_SETFD, 0);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    if (index >= 0)
        dup2(null, STDERR_FILENO);
    close(null);
    unsetenv("LAPSE_REPORT"); /* that of a `lapse run` around us */
    setenv("LD_PRELOAD", preload, 1);
    execl("/proc/self/exe", "lapse", "check", "--child", number, fd, allocator,
          NULL);
    _exit(127);
}

/* False when the time is over. */
static bool read_result(int fd, struct check_result *result)
{
    long until = now_ms() + LIMIT_MS, left;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    ssize_t n = 0;

    while ((left = until - now_ms()) > 0) {
        if (poll(&wait, 1, (int)left) <= 0)
            continue;
        n = read(fd, result, sizeof(*result));
        if (n >= 0 || errno != EINTR)
            break;
    }
    if (n != sizeof(*result)) {
        memset(result, 0, sizeof(*result));
        result->outcome = CHECK_CRASHED;
    }
    return left > 0;
}

static void say_how_it_ended(struct check_result *result, int status)
{
    if (WIFSIGNALED(status))
        snprintf(result->why, sizeof(result->why), "%s",
                 strsignal(WTERMSIG(status)));
    else
        snprintf(result->why, sizeof(result->why), "exit status %d",
                 WEXITSTATUS(status));
}

void check_run(int index, const char *preload, const char *allocator,
               struct check_result *result)
{
    int end[2], status = 0;
    pid_t child;

    memset(result, 0, sizeof(*result));
    result->outcome = CHECK_TROUBLE;
    if (pipe2(end, O_CLOEXEC)) {
        snprintf(result->why, sizeof(result->why), "cannot make a pipe: %s",
                 strerror(errno));
        return;
    }
    child = fork();
    if (!child)
        become_child(index, end[1], preload, allocator);
    close(end[1]);
    if (child < 0)
        snprintf(result->why, sizeof(result->why),
                 "cannot start a process: %s", strerror(errno));
    else if (!read_result(end[0], result))
        result->outcome = CHECK_HUNG;
    close(end[0]);
    if (child < 0)
        return;
    if (result->outcome == CHECK_HUNG)
        kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (result->outcome == CHECK_CRASHED)
        say_how_it_ended(result, status);
}

enum check_verdict check_verdict(const struct check_row *row,
                                 const struct check_result *r)
{
    bool told = !(r->verdict.stale & ~r->told) && r->range != RANGE_NONE;

    if (r->outcome == CHECK_SKIPPED)
        return VERDICT_SKIPPED;
    if (r->outcome != CHECK_DONE || r->verdict.disagree || !r->verdict.judged)
        return VERDICT_BROKEN;
    if (row->flags & ROW_FREE) {
        if (r->range != RANGE_NONE && r->range != RANGE_SHORT)
            return VERDICT_TOLD;
        return r->uncovered ? VERDICT_UNCOVERED : VERDICT_SILENT;
    }
    if (!r->verdict.stale)
        return row->flags & (ROW_KEEPS | ROW_MAY_KEEP | ROW_ALLOCATOR)
                   ? VERDICT_KEPT
                   : VERDICT_BROKEN;
    if (told)
        return VERDICT_TOLD;
    return r->uncovered ? VERDICT_UNCOVERED : VERDICT_SILENT;
}
