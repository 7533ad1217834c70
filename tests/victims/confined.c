/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that confines itself: any system call but those it makes kills it.
 * So a release may not make a system call of its own, but to look up a System V
 * segment that somebody may watch, or memory that may be of huge pages.
 * Usage: confined [--without-shm | --end]
 * --end: it releases nothing, but returns from main(), and may ask what time it
 * is and who it is.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#include "victim.h"

#define LET(nr)                                                            \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),                         \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int confine(int who)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        LET(SYS_munmap),     LET(SYS_mmap),    LET(SYS_madvise),
        LET(SYS_mremap),     LET(SYS_brk),     LET(SYS_shmdt),
        LET(SYS_exit_group), LET(SYS_mincore),
        LET(who ? SYS_getpid : SYS_mmap),
        LET(who ? SYS_clock_gettime : SYS_mmap),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Not where a huge page may begin: mremap of a part of one looks it up. */
static char *fresh_small(void)
{
    char *p = fresh(4 * PAGE);

    return (unsigned long)p % (2ul << 20) ? p : fresh(4 * PAGE);
}

/* Runs confined; nothing may be printed here. Returns what failed, or 0. */
static int released(void *segment)
{
    char *p, *q;

    for (int i = 0; i < 200; i++) {
        p = fresh_small();
        q = malloc(200000 + (size_t)i * 3000);
        q[0] = 1;
        KEEP(q);
        if (madvise(p, PAGE, MADV_DONTNEED) || p[0])
            return 3;
        if (mremap(p, 4 * PAGE, 2 * PAGE, 0) != p ||
            is_mapped(p + 2 * PAGE))
            return 4;
        free(q);
        if (munmap(p, 2 * PAGE))
            return 5;
    }
    if (sbrk(4 * PAGE) == (void *)-1 || sbrk(-4 * (long)PAGE) == (void *)-1)
        return 6;
    if (segment != (void *)-1 && shmdt(segment))
        return 7;
    return 0;
}

int main(int argc, char **argv)
{
    /* With subscribers shmdt looks up how long the segment is. */
    int end = argc > 1 && !strcmp(argv[1], "--end");
    int without_shm = end || (argc > 1 && !strcmp(argv[1], "--without-shm"));
    int id = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0600), status;
    pid_t pid = fork();

    if (pid == 0) {
        void *segment = without_shm ? (void *)-1 : shmat(id, NULL, 0);

        churn(1); /* the first one asks for random bytes */
        if (confine(end))
            _exit(2);
        if (end)
            exit(0);
        _exit(released(segment));
    }
    status = wait_for(pid, 10);
    shmctl(id, IPC_RMID, NULL);
    if (status == 2 << 8) {
        printf("ok confined (seccomp is not to be had here)\n");
        return 0;
    }
    if (status)
        differs("confined: wait status %#x (0x1f: a system call too many)",
                (unsigned)status);
    else
        printf("ok confined\n");
    return victim_end();
}
