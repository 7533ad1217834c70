/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs `lapse stacks` on this very process. An unwinder takes locks and
 * allocates, and cannot stop threads of its own process; so another process
 * does it, and the program must not notice that it has a child (G5):
 *
 *  - The helper is a clone() that shares our memory and has no exit signal. No
 *    SIGCHLD is sent for it, and wait() without __WCLONE or __WALL passes it
 *    by. It never executes anything, since what does gets SIGCHLD as its exit
 *    signal, whatever it had before.
 *  - The helper makes the command, waits for it, and ends. So that is not our
 *    child, nor does it become one if the program is a subreaper or init.
 *  - The helper first closes its copies of all descriptors but stderr: a pipe
 *    must not stay open because of it.
 *  - After RUN_SECONDS the command is ended by its alarm.
 *
 * All on static memory, by the only thread that there is of its kind. Nothing
 * is run in a process with a seccomp filter: it might be killed for it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "sys.h"
#include "watchdog.h"

#define RUN_SECONDS 30
#define STACK_SIZE 16384
#define PATH_SIZE 4096
#define ARGUMENTS (4 + 2 * WATCHDOG_THREADS)

static char command[PATH_SIZE]; /* "" = not found */
static char numbers[WATCHDOG_THREADS + 1][12];
static const char *arguments[ARGUMENTS];
static char helper_stack[STACK_SIZE] __attribute__((aligned(16)));
static char command_stack[STACK_SIZE] __attribute__((aligned(16)));
static _Atomic uint32_t go; /* futex: the helper may begin */
static _Atomic int outcome; /* of the helper: exit status, or -errno */

static bool put(char *to, size_t *used, const char *text, size_t length)
{
    if (length >= PATH_SIZE - *used)
        return false;
    memcpy(to + *used, text, length);
    *used += length;
    to[*used] = 0;
    return true;
}

/* Beside the library, as in the directory it was built in, or in bin/ beside
 * lib/, or beside lib/CPU-linux-gnu. */
void watchdog_find_command(void)
{
    static const char *const places[] = {"lapse", "../bin/lapse",
                                         "../../bin/lapse"};
    size_t dir = 0, used;
    const char *slash;
    Dl_info info;

    if (!dladdr(&lapse_config, &info) || !info.dli_fname)
        return;
    slash = strrchr(info.dli_fname, '/');
    if (info.dli_fname[0] != '/') {
        /* the length, with the 0 at the end */
        long length = sys(SYS_getcwd, command, PATH_SIZE - 1);

        dir = length > 1 ? (size_t)length - 1 : 0;
        if (!slash || !dir || !put(command, &dir, "/", 1))
            goto none;
    }
    if (!put(command, &dir, info.dli_fname,
             (size_t)(slash - info.dli_fname) + 1))
        goto none;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        used = dir;
        if (put(command, &used, places[i], strlen(places[i])) &&
            !sys(SYS_access, command, X_OK))
            return;
    }
none:
    command[0] = 0;
}

static const char *number(char *to, uint32_t n)
{
    char *end = to + 11;

    *end = 0;
    do
        *--end = (char)('0' + n % 10);
    while (n /= 10);
    return end;
}

/* What the kernel takes: the first eight bytes are the handler. */
static void default_signals(void)
{
    static const uint64_t by_default[4], none;

    for (int i = 1; i <= 64; i++)
        sys(SYS_rt_sigaction, i, by_default, 0, sizeof(none));
    sys(SYS_rt_sigprocmask, SIG_SETMASK, &none, 0, sizeof(none));
}

/* In the command's process, whose memory is still ours. */
static int become_command(void *unused)
{
    static const char *const environment[] = {NULL};

    (void)unused;
    sys(SYS_open, "/dev/null", O_RDONLY); /* the lowest there is: 0 */
    sys(SYS_dup2, 2, 1);
    sys(SYS_alarm, RUN_SECONDS);
    default_signals();
    return (int)sys(SYS_execve, command, arguments, environment) ? 127 : 0;
}

/* In the helper. Who is to say go may be killed before he does. */
static int help(void *process)
{
    static const struct timespec tick = {.tv_nsec = 100000000};
    int pid, status = -1;
    long err;

    while (!atomic_load_explicit(&go, memory_order_acquire)) {
        if (sys(SYS_getppid) != (long)process)
            return 0;
        sys(SYS_futex, &go, FUTEX_WAIT_PRIVATE, 0, &tick);
    }
    err = sys(SYS_close_range, 3, ~0u, 0);
    if (!err) {
        sys(SYS_close_range, 0, 1, 0);
        pid = clone(become_command, command_stack + STACK_SIZE,
                    CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
        err = pid < 0 ? -EAGAIN : sys(SYS_wait4, pid, &status, 0, 0);
    }
    /* relaxed: read when this process is gone */
    atomic_store_explicit(&outcome,
                          err < 0             ? (int)err
                          : WIFEXITED(status) ? WEXITSTATUS(status)
                                              : -EINTR,
                          memory_order_relaxed);
    return 0;
}

/* Yama lets nobody trace but a parent, or whom the process names, and those
 * who descend from it. */
static bool yama_asks(void)
{
    long fd = sys(SYS_open, "/proc/sys/kernel/yama/ptrace_scope", O_RDONLY);
    char scope = 0;

    if (fd < 0)
        return false;
    if (sys(SYS_read, fd, &scope, 1) != 1)
        scope = 0;
    sys(SYS_close, fd);
    return scope == '1';
}

static int run(void)
{
    bool yama = yama_asks();
    int pid, status;

    atomic_store_explicit(&go, 0, memory_order_relaxed);
    atomic_store_explicit(&outcome, -ECHILD, memory_order_relaxed);
    pid = clone(help, helper_stack + STACK_SIZE, CLONE_VM,
                (void *)sys(SYS_getpid));
    if (pid < 0)
        return -EAGAIN;
    if (yama)
        sys(SYS_prctl, PR_SET_PTRACER, pid);
    /* release: with the acquire in help() */
    atomic_store_explicit(&go, 1, memory_order_release);
    sys(SYS_futex, &go, FUTEX_WAKE_PRIVATE, 1);
    while (sys(SYS_wait4, pid, &status, __WCLONE, 0) == -EINTR)
        ;
    if (yama)
        sys(SYS_prctl, PR_SET_PTRACER, 0);
    return atomic_load_explicit(&outcome, memory_order_relaxed);
}

int watchdog_stacks(const uint32_t *tids, unsigned n)
{
    unsigned used = 0;

    if (!command[0])
        return -ENOENT;
    if (!log_is_open())
        return -EBADF;
    if (sys(SYS_prctl, PR_GET_SECCOMP))
        return -EPERM;
    arguments[used++] = command;
    arguments[used++] = "stacks";
    for (unsigned i = 0; i < n; i++) {
        arguments[used++] = "--thread";
        arguments[used++] = number(numbers[i], tids[i]);
    }
    arguments[used++] = number(numbers[n], (uint32_t)sys(SYS_getpid));
    arguments[used] = NULL;
    return run();
}
