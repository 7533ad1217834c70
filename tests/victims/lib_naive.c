/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How not to do it, the control of case G1: a wrapper of mmap that looks for
 * the real one when it is first called. A name that is missing makes dlsym
 * allocate; the allocator is just starting, and calls mmap.
 */
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/types.h>

void *mmap(void *p, size_t len, int prot, int flags, int fd, off_t offset)
{
    static void *(*next)(void *, size_t, int, int, int, off_t);

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "__mmap_of_another_libc");
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "mmap");
    return next(p, len, prot, flags, fd, offset);
}
