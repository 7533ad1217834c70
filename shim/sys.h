/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * System calls made by the library itself: inline, so that they pass by no
 * patched site, touch no errno and need no libc.
 */
#ifndef LAPSE_SYS_H
#define LAPSE_SYS_H

#if !defined(__x86_64__)
#error "this processor is not supported yet: see hooks/arch.h"
#endif

/* Of the kernel's sets of signals, which are 64 bits. */
#define SIGNAL_BIT(signal) ((uint64_t)1 << ((signal) - 1))

static inline long sys_call6(long nr, long a, long b, long c, long d, long e,
                             long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long ret;

    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8),
                       "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}
/* As sys_call6; leaves the last three where they are, for who takes three. */
static inline long sys_call3(long nr, long a, long b, long c)
{
    long ret;

    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return ret;
}
#define SYS_CALL_(nr, a, b, c, d, e, f, ...)                               \
    sys_call6(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e),  \
              (long)(f))
/* sys(SYS_x, up to six arguments): the kernel's own return value. */
#define sys(...) SYS_CALL_(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

#endif
