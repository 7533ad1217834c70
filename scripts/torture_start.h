/* SPDX-License-Identifier: BSD-3-Clause */
/* What the scenarios begin with: a child, and memory that it shares with who
 * watches it. */
#ifndef LAPSE_TORTURE_START_H
#define LAPSE_TORTURE_START_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* As fork(): the child ends with its parent. */
static inline pid_t torture_fork(void)
{
    pid_t parent = getpid(), pid = fork();

    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    return 0;
}

static inline void *torture_map(int fd, size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED) {
        perror("torture: board");
        exit(2);
    }
    return p;
}

#endif
