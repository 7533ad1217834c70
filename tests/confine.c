/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a program under limits that a careful administrator might set.
 * Usage: confine LIMIT... -- COMMAND...
 *   errno:CALL:ERRNO  that system call (by number) fails so
 *   only:CALL,CALL... any other system call kills the program
 *   mdwe              the kernel's own: what was not executable never will be
 *   no-exec           no memory becomes executable: mprotect and mmap with
 *                     PROT_EXEC fail, but mappings of files
 *   no-new-privs
 *   as:BYTES nofile:N fsize:BYTES stack:BYTES   resource limits
 *   chroot:DIRECTORY  (a name space of users if need be)
 *   close             descriptors 0, 1 and 2
 * Exit status 77: the kernel has it not.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif
#define ARG(n) (offsetof(struct seccomp_data, args) + 8 * (n))
#define LOAD(at) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (at))
#define FAIL(err) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (err))
#define OK BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void refuse(const char *what)
{
    perror(what);
    exit(77);
}

static void install(struct sock_filter *filter, unsigned short n)
{
    struct sock_fprog program = {n, filter};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        refuse("seccomp");
}

static void fail_call(unsigned nr, unsigned err)
{
    struct sock_filter filter[] = {
        LOAD(offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), FAIL(err), OK};

    install(filter, sizeof filter / sizeof *filter);
}

/* Of the list each number is one instruction, and one after them lets through
 * or kills; execve, which is to come, is let through, too. */
#define CALLS 120

static void only_calls(char *list)
{
    struct sock_filter filter[CALLS + 4] = {
        LOAD(offsetof(struct seccomp_data, nr))};
    unsigned nr[CALLS], calls = 0;

    nr[calls++] = SYS_execve;
    for (char *n = strtok(list, ","); n && calls < CALLS; n = strtok(NULL, ","))
        nr[calls++] = (unsigned)atoi(n);
    for (unsigned i = 0; i < calls; i++)
        filter[1 + i] = (struct sock_filter)BPF_JUMP(
            BPF_JMP | BPF_JEQ | BPF_K, nr[i], (unsigned char)(calls - i), 0);
    filter[1 + calls] = (struct sock_filter)BPF_STMT(
        BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    filter[2 + calls] = (struct sock_filter)OK;
    install(filter, (unsigned short)(3 + calls));
}

/* Files may be mapped executable, or no program would start. */
static void no_exec(void)
{
    struct sock_filter filter[] = {
        LOAD(offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 5),
        LOAD(ARG(3)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_ANONYMOUS, 1, 0),
        OK,
        LOAD(ARG(2)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0),
        OK,
        FAIL(EACCES)};

    install(filter, sizeof filter / sizeof *filter);
}

static void limit(int which, const char *value)
{
    rlim_t n = strtoul(value, NULL, 0);

    if (setrlimit(which, &(struct rlimit){n, n}))
        refuse("setrlimit");
}

static void change_root(const char *directory)
{
    if (geteuid() && unshare(CLONE_NEWUSER))
        refuse("unshare");
    if (chroot(directory) || chdir("/"))
        refuse("chroot");
}

static void confine(char *how)
{
    char *value = strchr(how, ':');

    if (value)
        *value++ = 0;
    if (!strcmp(how, "errno")) {
        char *err = strchr(value, ':');

        fail_call((unsigned)atoi(value), (unsigned)atoi(err + 1));
    } else if (!strcmp(how, "only"))
        only_calls(value);
    else if (!strcmp(how, "mdwe")) {
        if (prctl(PR_SET_MDWE, 1, 0, 0, 0))
            refuse("PR_SET_MDWE");
    } else if (!strcmp(how, "no-exec"))
        no_exec();
    else if (!strcmp(how, "no-new-privs"))
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    else if (!strcmp(how, "as"))
        limit(RLIMIT_AS, value);
    else if (!strcmp(how, "nofile"))
        limit(RLIMIT_NOFILE, value);
    else if (!strcmp(how, "fsize"))
        limit(RLIMIT_FSIZE, value);
    else if (!strcmp(how, "stack"))
        limit(RLIMIT_STACK, value);
    else if (!strcmp(how, "chroot"))
        change_root(value);
    else if (!strcmp(how, "close")) {
        close(0);
        close(1);
        close(2);
    } else {
        fprintf(stderr, "confine: what is %s?\n", how);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    int i = 1;
    const char *preload = getenv("CONFINE_PRELOAD");

    for (; i < argc && strcmp(argv[i], "--"); i++)
        confine(argv[i]);
    if (i + 1 >= argc)
        return 2;
    if (preload)
        setenv("LD_PRELOAD", preload, 1);
    execvp(argv[i + 1], argv + i + 1);
    return 126;
}
