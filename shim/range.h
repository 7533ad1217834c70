/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Page-rounded ranges, by arithmetic that cannot overflow: everything is
 * checked against the end of user space first.
 */
#ifndef LAPSE_RANGE_H
#define LAPSE_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE_SHIFT 12
#define PAGE_SIZE ((uintptr_t)1 << PAGE_SHIFT)
/* With five-level paging the kernel gives addresses above this only to who
 * asks for them by hint; nobody can watch such memory here. */
#define USER_END ((uintptr_t)1 << 47)

static inline uintptr_t page_down(uintptr_t addr)
{
    return addr & ~(PAGE_SIZE - 1);
}

static inline uintptr_t page_up(uintptr_t addr)
{
    return page_down(addr + PAGE_SIZE - 1);
}

/*
 * As the kernel rounds munmap and madvise: false when the call cannot release
 * anything (start not on a page, nothing asked for, wraps).
 */
static inline bool range_of_call(uintptr_t addr, size_t len, uintptr_t *start,
                                 uintptr_t *end)
{
    if ((addr & (PAGE_SIZE - 1)) || !len || addr >= USER_END ||
        len > ~(size_t)0 - (PAGE_SIZE - 1))
        return false;
    *start = addr;
    len = page_up(len);
    *end = len > USER_END - addr ? USER_END : addr + len;
    return true;
}

/* As a caller of the API means it: rounded outward; strict. */
static inline bool range_of_user(const void *p, size_t len, uintptr_t *start,
                                 uintptr_t *end)
{
    uintptr_t addr = (uintptr_t)p;

    if (!addr || !len || addr >= USER_END || len > USER_END - addr)
        return false;
    *start = page_down(addr);
    *end = page_up(addr + len);
    return true;
}

#endif
