/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program whose seccomp filter sends SIGSYS instead of some releases, as
 * sandboxes do that make the call somewhere else: its handler finds the call's
 * number and arguments in the registers, and puts a result there.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "victim.h"

#define MAGIC (PAGE * 77)  /* a length that nothing else has */
#define RESULT ENOTBLK     /* an error that munmap never has */

static char *expected, *other;
static volatile sig_atomic_t traps, wrong;

static void on_sys(int signal, siginfo_t *info, void *context)
{
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;

    (void)signal;
    traps++;
    wrong += r[REG_RDI] != (greg_t)(uintptr_t)expected;
    wrong += r[REG_RSI] != (greg_t)MAGIC;
    wrong += info->si_syscall != (int)r[REG_RAX];
    /* the call is the two bytes before */
    wrong += (uintptr_t)info->si_call_addr != (uintptr_t)r[REG_RIP];
    wrong += *(uint16_t *)(r[REG_RIP] - 2) != 0x050f;
    if (other && munmap(other, PAGE)) /* releases, too */
        wrong++;
    other = NULL;
    r[REG_RAX] = -RESULT;
}

static int trap(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MAGIC, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(void)
{
    struct sigaction act = {.sa_sigaction = on_sys, .sa_flags = SA_SIGINFO};
    int failed = 0;

    expected = fresh(MAGIC);
    sigaction(SIGSYS, &act, NULL);
    if (trap()) {
        printf("ok trapped (seccomp is not to be had here)\n");
        return 0;
    }
    for (int i = 0; i < 300; i++) {
        other = fresh(PAGE);
        errno = 0;
        failed += munmap(expected, MAGIC) != -1 || errno != RESULT;
        errno = 0;
        failed += madvise(expected, MAGIC, MADV_DONTNEED) != -1 ||
                  errno != RESULT;
        errno = 0;
        failed += syscall(SYS_munmap, expected, MAGIC) != -1 ||
                  errno != RESULT;
    }
    check(traps == 900, "every call came to the handler");
    check(!wrong, "it found number, arguments and place of the call");
    check(!failed, "its result was returned");
    return victim_end();
}
