/* SPDX-License-Identifier: BSD-3-Clause */
/* A system call made by whoever includes this, and by nobody else. */
#ifndef AUDIT_PLANTED_H
#define AUDIT_PLANTED_H

static inline long planted_call(long nr, void *a, long b, long c)
{
    long ret;

    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return ret;
}

#endif
