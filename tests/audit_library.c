/* SPDX-License-Identifier: BSD-3-Clause */
/* As audit_victim.c, in a library that is opened later. */
#include <sys/mman.h>
#include <sys/syscall.h>

#include "audit_planted.h"

long planted_madvise(void *at, long size);
long planted_madvise(void *at, long size)
{
    return planted_call(SYS_madvise, at, size, MADV_DONTNEED);
}
