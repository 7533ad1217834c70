/* SPDX-License-Identifier: BSD-3-Clause */
/* What the scenarios begin with: numbers from the command line, and memory
 * that a child shares with who watches it. */
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

static inline bool torture_number(const char *text, uint64_t most,
                                  uint64_t *out)
{
    char *end;

    *out = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && !*end && *out <= most;
}

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
