/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "supervise.h"

static sigset_t held;                /* signals taken with sigwaitinfo() */
static sigset_t mask_before;         /* the command gets this one back */
static struct sigaction chld_before; /* and this */

void supervise_hold(void)
{
    static const int ours[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE,
                               SIGTRAP, SIGSYS, SIGABRT,
                               /* a background job that writes stops */
                               SIGTTIN, SIGTTOU};
    struct sigaction plain = {.sa_handler = SIG_DFL};

    sigfillset(&held);
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        sigdelset(&held, ours[i]);
    sigprocmask(SIG_BLOCK, &held, &mask_before);
    /* If inherited ignored, the exit status would be lost. */
    sigaction(SIGCHLD, &plain, &chld_before);
}

void supervise_release(void)
{
    static const struct timespec now;

    while (sigtimedwait(&held, NULL, &now) > 0)
        ;
    /* Nobody reading the report is no reason not to end as we should. */
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_SETMASK, &mask_before, NULL);
}

_Noreturn void supervise_die(int sig)
{
    struct rlimit none = {0, 0};
    sigset_t one;

    /* A pipe in core_pattern does not ask for the limit. */
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0);
    signal(sig, SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, sig);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    raise(sig);
    _exit(128 + sig);
}

static _Noreturn void become(char **argv, char **environment, int report)
{
    int error;

    sigaction(SIGCHLD, &chld_before, NULL);
    sigprocmask(SIG_SETMASK, &mask_before, NULL);
    execvpe(argv[0], argv, environment);
    error = errno;
    while (write(report, &error, sizeof(error)) < 0 && errno == EINTR)
        ;
    _exit(127);
}

/* What the command is doing, as far as its stops are concerned. */
struct job {
    pid_t pid;
    int status;
    bool ended;
    bool stopped;
    time_t asked; /* when the terminal asked the whole group to stop */
    bool resumed; /* we were stopped: the next SIGCONT is for that */
};

static time_t uptime(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/*
 * The command stopped at the keyboard's wish: our shell must see a stop too.
 * A stop by someone who sent SIGSTOP to it alone is not ours: that one will
 * not think of continuing us.
 */
static void job_follow_stop(struct job *job, int sig)
{
    enum { TIDYING = 3 }; /* seconds an editor takes to restore the screen */
    sigset_t one;

    if (sig == SIGSTOP && job->asked && uptime() - job->asked <= TIDYING)
        sig = SIGTSTP;
    if (sig != SIGTSTP && sig != SIGTTIN && sig != SIGTTOU)
        return;
    job->asked = 0;
    job->resumed = true;
    sigemptyset(&one);
    sigaddset(&one, sig);
    /* While blocked, so that it is one with that of the terminal. */
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &one, NULL); /* returns when continued */
    sigprocmask(SIG_BLOCK, &held, NULL);
}

static void job_look(struct job *job)
{
    int status;

    while (!job->ended &&
           waitpid(job->pid, &status, WNOHANG | WUNTRACED | WCONTINUED) > 0) {
        if (WIFSTOPPED(status)) {
            job->stopped = true;
            job_follow_stop(job, WSTOPSIG(status));
        } else if (WIFCONTINUED(status)) {
            job->stopped = false;
        } else {
            job->ended = true;
            job->status = status;
        }
    }
}

/* Did the command get it from where we got it? */
static bool job_has(struct job *job, const siginfo_t *info)
{
    int sig = info->si_signo;

    if (info->si_code > 0) {
        /* From the kernel: the terminal, which tells the whole group; but a
         * hang-up goes to the leader of the session alone. */
        return sig != SIGHUP || getsid(0) != getpid();
    }
    if (sig == SIGCONT && job->resumed) {
        job->resumed = false;
        job_look(job);
        return !job->stopped;
    }
    return info->si_pid == job->pid || info->si_pid == getpid();
}

static void job_signal(struct job *job, const siginfo_t *info)
{
    int sig = info->si_signo;

    if (sig == SIGTSTP && info->si_code > 0)
        job->asked = uptime();
    if (job_has(job, info) || job->ended)
        return;
    if (info->si_code == SI_QUEUE)
        sigqueue(job->pid, sig, info->si_value);
    else
        kill(job->pid, sig);
}

int supervise(char **argv, char **environment, int *status)
{
    struct job job = {0};
    siginfo_t info;
    int report[2], error = 0;
    ssize_t got;

    if (pipe2(report, O_CLOEXEC))
        return -errno;
    job.pid = fork();
    if (job.pid < 0) {
        error = errno;
        close(report[0]);
        close(report[1]);
        return -error;
    }
    if (!job.pid)
        become(argv, environment, report[1]);
    close(report[1]);
    do
        got = read(report[0], &error, sizeof(error));
    while (got < 0 && errno == EINTR);
    close(report[0]);
    for (job_look(&job); !job.ended; job_look(&job)) {
        if (sigwaitinfo(&held, &info) < 0 || info.si_signo == SIGCHLD)
            continue;
        job_signal(&job, &info);
    }
    *status = job.status;
    return got == (ssize_t)sizeof(error) ? error : 0;
}
