/* SPDX-License-Identifier: BSD-3-Clause */
/* Releases what it is given through the libc that it is bound to: one of its
 * own, in a namespace of its own, for api_namespace.c. */
#include "victim_namespace.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *get(size_t size)
{
    char *p = malloc(size);

    if (p)
        memset(p, 0x5a, size);
    return p;
}

static void give(void *p)
{
    free(p);
}

static int unmap(void *p, size_t size)
{
    return munmap(p, size);
}

static int advise(void *p, size_t size)
{
    return madvise(p, size, MADV_DONTNEED);
}

static int raw(void *p, size_t size)
{
    return (int)syscall(SYS_munmap, p, size);
}

static int fork_here(void)
{
    return fork();
}

static int cut(const char *name, int fd)
{
    int again = open(name, O_RDWR | O_TRUNC);

    if (again < 0)
        return -1;
    close(again);
    return ftruncate(fd, 0);
}

const struct lib_namespace lib_namespace = {
    get, give, unmap, advise, raw, cut, fork_here};

__attribute__((constructor)) static void begin(void)
{
    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* and it stays there */
    for (int i = 0; i < LIB_NAMESPACE_EARLY; i++) {
        void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                       0);

        munmap(p, 4096);
    }
}
