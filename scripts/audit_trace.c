/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tracer of the command and of all that it starts. Threads stop for us at
 * the calls of audit_filter.c and, as ptrace has it, whenever a signal comes;
 * they get every signal as it is. PTRACE_SEIZE lets us tell a signal from a
 * stop of the whole process, which PTRACE_LISTEN leaves as it is.
 *
 * The end of the tracer is that of the command: with the filter in place and
 * nobody to stop for, the kernel would refuse those calls (ENOSYS).
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "audit.h"
#include "command.h"

#define OPTIONS                                                               \
    (PTRACE_O_EXITKILL | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEEXEC |         \
     PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE)

enum {
    CONTINUED = 0xffff, /* what waitpid() has for WIFCONTINUED */
    PATIENCE = 2        /* seconds until we say what we wait for */
};

/* Here and below, errors: the thread was killed, its end will be told of. */
static void go_on(pid_t tid, int sig)
{
    ptrace(PTRACE_CONT, tid, NULL, (void *)(long)sig);
}

static void look_at_call(struct audit *audit, struct audit_task *task)
{
    struct __ptrace_syscall_info info;
    uint64_t arguments[6];
    long got = ptrace(PTRACE_GET_SYSCALL_INFO, audit_task_id(task),
                      (void *)sizeof(info), &info);

    if (got < 0 && errno == ESRCH)
        return; /* killed: there is no call */
    if (got <= 0 || info.op != PTRACE_SYSCALL_INFO_SECCOMP ||
        info.seccomp.ret_data >= audit_calls_count) {
        audit->lost++;
        return;
    }
    for (size_t i = 0; i < 6; i++)
        arguments[i] = info.seccomp.args[i];
    audit_task_called(audit, task, &audit_calls[info.seccomp.ret_data],
                      arguments, info.instruction_pointer);
}

static void look_at_fork(struct audit *audit, struct audit_task *task)
{
    unsigned long child;

    if (!ptrace(PTRACE_GETEVENTMSG, audit_task_id(task), NULL, &child))
        audit_task_forked(audit, task, (pid_t)child);
}

/* Whichever thread called it, it goes on as the only one, the leader. */
static void look_at_exec(struct audit *audit, struct audit_task *task)
{
    pid_t tid = audit_task_id(task);
    unsigned long before;

    if (!ptrace(PTRACE_GETEVENTMSG, tid, NULL, &before) &&
        (pid_t)before != tid)
        audit_task_drop(audit, (pid_t)before);
    audit_task_executed(audit, task);
}

/* Of the command itself, supervise() wants to know. True: it does now. */
static bool tell(struct audit *audit, pid_t tid, int *status, int what)
{
    bool stopped = what != CONTINUED;

    if (tid != audit->command || audit->stopped == stopped)
        return false;
    audit->stopped = stopped;
    *status = what;
    return true;
}

static bool is_stop(int sig)
{
    return sig == SIGSTOP || sig == SIGTSTP || sig == SIGTTIN ||
           sig == SIGTTOU;
}

/* A stop of the whole process, its end, or the first stop of a new thread. */
static bool look_at_group(struct audit *audit, pid_t tid, int *status)
{
    int sig = WSTOPSIG(*status);

    if (is_stop(sig)) {
        ptrace(PTRACE_LISTEN, tid, NULL, NULL);
        return tell(audit, tid, status, W_STOPCODE(sig));
    }
    go_on(tid, 0);
    return tell(audit, tid, status, CONTINUED);
}

static bool look_at_stop(struct audit *audit, pid_t tid, int *status)
{
    struct audit_task *task = audit_task_get(audit, tid);

    switch (*status >> 16) {
    case 0:
        go_on(tid, WSTOPSIG(*status));
        return false;
    case PTRACE_EVENT_STOP:
        return look_at_group(audit, tid, status);
    case PTRACE_EVENT_SECCOMP:
        if (task)
            look_at_call(audit, task);
        break;
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
    case PTRACE_EVENT_CLONE:
        if (task)
            look_at_fork(audit, task);
        break;
    case PTRACE_EVENT_EXEC:
        if (task)
            look_at_exec(audit, task);
        break;
    }
    go_on(tid, 0);
    return false;
}

static int audit_enter(struct onlooker *onlooker)
{
    (void)onlooker;
    return audit_filter_install();
}

static int audit_begin(struct onlooker *onlooker, pid_t command)
{
    struct audit *audit = (struct audit *)onlooker;

    audit->command = command;
    if (ptrace(PTRACE_SEIZE, command, NULL, (void *)(long)OPTIONS))
        return errno;
    return 0;
}

static bool audit_next(struct onlooker *onlooker, int *status)
{
    struct audit *audit = (struct audit *)onlooker;
    pid_t tid;

    while ((tid = waitpid(-1, status, WNOHANG | __WALL)) > 0) {
        if (WIFSTOPPED(*status)) {
            if (look_at_stop(audit, tid, status))
                return true;
            continue;
        }
        audit_task_drop(audit, tid);
        if (tid == audit->command)
            return true;
    }
    return false;
}

void audit_trace_make(struct audit *audit)
{
    audit->onlooker = (struct onlooker){.enter = audit_enter,
                                        .begin = audit_begin,
                                        .next = audit_next};
}

void audit_trace_rest(struct audit *audit)
{
    static const struct timespec patience = {.tv_sec = PATIENCE};
    bool said = false;
    siginfo_t info;
    int status, sig;

    audit->command = 0; /* the number may be another's now */
    for (;;) {
        while (audit_next(&audit->onlooker, &status))
            ;
        if (waitid(P_ALL, 0, &info,
                   WEXITED | WSTOPPED | WNOHANG | WNOWAIT | __WALL))
            return; /* nobody is left */
        sig = supervise_signal(said ? NULL : &patience);
        if (sig < 0 && errno == EAGAIN) {
            say("the command has ended, but processes it started have not: "
                "waiting for them (interrupt to kill them)");
            said = true;
        }
        if (sig == SIGINT || sig == SIGTERM || sig == SIGHUP ||
            sig == SIGQUIT)
            return; /* they are killed with us */
    }
}
