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

/* What the child has to tell and to be told before it is the command. */
struct start {
    int report[2]; /* to us: errno of exec, or -errno */
    int go[2];     /* to it: closed when it may begin */
};

static _Noreturn void become(char **argv, char **environment,
                             struct onlooker *onlooker, struct start *start)
{
    int error = 0, report = start->report[1];
    char none;

    close(start->go[1]);
    while (read(start->go[0], &none, 1) < 0 && errno == EINTR)
        ;
    sigaction(SIGCHLD, &chld_before, NULL);
    sigprocmask(SIG_SETMASK, &mask_before, NULL);
    if (onlooker && onlooker->enter)
        error = -onlooker->enter(onlooker);
    if (!error) {
        execvpe(argv[0], argv, environment);
        error = errno;
    }
    while (write(report, &error, sizeof(error)) < 0 && errno == EINTR)
        ;
    _exit(127);
}

/* What the command is doing, as far as its stops are concerned. */
struct job {
    pid_t pid;
    struct onlooker *onlooker;
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

static bool job_next(struct job *job, int *status)
{
    if (job->onlooker && job->onlooker->next)
        return job->onlooker->next(job->onlooker, status);
    return waitpid(job->pid, status, WNOHANG | WUNTRACED | WCONTINUED) > 0;
}

static void job_look(struct job *job)
{
    int status;

    while (!job->ended && job_next(job, &status)) {
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

int supervise_signal(const struct timespec *limit)
{
    return limit ? sigtimedwait(&held, NULL, limit) : sigwaitinfo(&held, NULL);
}

static bool start_make(struct start *start)
{
    if (pipe2(start->report, O_CLOEXEC))
        return false;
    if (!pipe2(start->go, O_CLOEXEC))
        return true;
    close(start->report[0]);
    close(start->report[1]);
    return false;
}

/* Forks, and lets the child begin. 0 or errno. */
static int job_start(struct job *job, char **argv, char **environment,
                     struct start *start)
{
    int error = 0;

    job->pid = fork();
    if (!job->pid)
        become(argv, environment, job->onlooker, start);
    if (job->pid < 0)
        error = errno;
    else if (job->onlooker && job->onlooker->begin)
        error = job->onlooker->begin(job->onlooker, job->pid);
    if (error && job->pid > 0) {
        kill(job->pid, SIGKILL);
        waitpid(job->pid, NULL, 0);
    }
    close(start->report[1]);
    close(start->go[0]);
    close(start->go[1]);
    return error;
}

/* The next signal that we hold; with somebody idle there, none: < 0. */
static int job_wait(struct job *job, siginfo_t *info)
{
    struct timespec time = {0, 0};
    int ms;

    if (!job->onlooker || !job->onlooker->idle)
        return sigwaitinfo(&held, info);
    ms = job->onlooker->idle(job->onlooker);
    time.tv_sec = ms / 1000;
    time.tv_nsec = ms % 1000 * 1000000L;
    return sigtimedwait(&held, info, &time);
}

int supervise(char **argv, char **environment, struct onlooker *onlooker,
              int *status)
{
    struct job job = {.onlooker = onlooker};
    struct start start;
    siginfo_t info;
    int error;
    ssize_t got;

    if (!start_make(&start))
        return -errno;
    error = job_start(&job, argv, environment, &start);
    if (error) {
        close(start.report[0]);
        return -error;
    }
    for (job_look(&job); !job.ended; job_look(&job)) {
        if (job_wait(&job, &info) < 0 || info.si_signo == SIGCHLD)
            continue;
        job_signal(&job, &info);
    }
    *status = job.status;
    /* Last, as an onlooker has to let the child go on to its exec. */
    do
        got = read(start.report[0], &error, sizeof(error));
    while (got < 0 && errno == EINTR);
    close(start.report[0]);
    return got == (ssize_t)sizeof(error) ? error : 0;
}
