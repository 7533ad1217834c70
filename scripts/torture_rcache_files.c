/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that are mapped, and cut off or holed meanwhile; segments of shmat.
   No name is left behind, whenever the program is killed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include "torture_rcache_blocks.h"

/* Twice as long as what is mapped, for remap_file_pages. */
char *make_memfd(struct block *b, uint64_t r)
{
    (void)r;
    b->fd = memfd_create("torture", MFD_CLOEXEC);
    if (b->fd < 0 || ftruncate(b->fd, (off_t)(2 * b->len)))
        return NULL;
    return block_map(NULL, b->len, MAP_SHARED, b->fd);
}

static bool punch(struct block *b)
{
    if (!way_open(WAY_PUNCH))
        return false;
    if (fallocate(b->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                  (off_t)(2 * b->len)))
        return way_refused(WAY_PUNCH);
    return true;
}

/* To nothing, in one of three ways, and as long as before. */
static bool cut(struct block *b, enum rcache_way way)
{
    char name[32];
    int other = -1, err;

    if (!way_open(way))
        return false;
    snprintf(name, sizeof(name), "/proc/self/fd/%d", b->fd);
    if (way == WAY_FTRUNCATE)
        err = ftruncate(b->fd, 0);
    else if (way == WAY_TRUNCATE)
        err = truncate(name, 0);
    else
        err = (other = open(name, O_RDWR | O_TRUNC | O_CLOEXEC)) < 0;
    if (err)
        way_refused(way);
    if (other >= 0)
        close(other);
    if (ftruncate(b->fd, (off_t)(2 * b->len)))
        rcache_trouble("ftruncate", -errno);
    return !err;
}

/* The other half of the file comes to the address. */
static bool remap(struct block *b)
{
    size_t other = b->handle ? 0 : b->len / PAGE;

    if (!way_open(WAY_REMAP_FILE))
        return false;
    if (remap_file_pages(b->p, b->len, 0, other, 0))
        return way_refused(WAY_REMAP_FILE);
    b->handle = other ? b : NULL;
    return true;
}

enum rcache_way release_memfd(struct block *b, unsigned way)
{
    switch (way % 7) {
    case 0:
        if (madvise(b->p, b->len, MADV_REMOVE))
            break;
        return WAY_REMOVE;
    case 1:
        if (punch(b))
            return WAY_PUNCH;
        break;
    case 2:
        if (cut(b, WAY_FTRUNCATE))
            return WAY_FTRUNCATE;
        break;
    case 3:
        if (cut(b, WAY_TRUNCATE))
            return WAY_TRUNCATE;
        break;
    case 4:
        if (cut(b, WAY_OPEN))
            return WAY_OPEN;
        break;
    case 5:
        if (remap(b))
            return WAY_REMAP_FILE;
        break;
    }
    return block_unmap(b);
}

/*
 * What tmpfs cannot do, a file system of a disk may. It does not let shared
 * mappings be pinned; private ones it takes away too, pages that were written
 * to included, where the file moves or ends.
 */
char *make_disk(struct block *b, uint64_t r)
{
    const char *dir = getenv("TMPDIR");

    (void)r;
    b->fd = open(dir && *dir ? dir : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC,
                 0600);
    if (b->fd < 0 || ftruncate(b->fd, (off_t)(2 * b->len))) {
        way_refused(WAY_COLLAPSE);
        way_refused(WAY_ZERO);
        return NULL;
    }
    return block_map(NULL, b->len, MAP_PRIVATE, b->fd);
}

static bool allocate(struct block *b, int mode, enum rcache_way way)
{
    if (!way_open(way))
        return false;
    if (fallocate(b->fd, mode, 0, (off_t)b->len))
        return way_refused(way);
    if (ftruncate(b->fd, (off_t)(2 * b->len)))
        rcache_trouble("ftruncate", -errno);
    return true;
}

enum rcache_way release_disk(struct block *b, unsigned way)
{
    switch (way % 4) {
    case 0:
        if (allocate(b, FALLOC_FL_COLLAPSE_RANGE, WAY_COLLAPSE))
            return WAY_COLLAPSE;
        break;
    case 1:
        if (allocate(b, FALLOC_FL_ZERO_RANGE, WAY_ZERO))
            return WAY_ZERO;
        break;
    case 2:
        if (cut(b, WAY_FTRUNCATE))
            return WAY_FTRUNCATE;
        break;
    }
    return block_unmap(b);
}

static char *attach(struct block *b, void *at, int flags)
{
    int id = shmget(IPC_PRIVATE, b->len, IPC_CREAT | 0600);
    char *p = id < 0 ? (char *)-1 : shmat(id, at, flags);

    if (id >= 0)
        shmctl(id, IPC_RMID, NULL);
    return p == (char *)-1 ? NULL : p;
}

char *make_sysv(struct block *b, uint64_t r)
{
    (void)r;
    return attach(b, NULL, 0);
}

enum rcache_way release_sysv(struct block *b, unsigned way)
{
    if (way % 2 && attach(b, b->p, SHM_REMAP))
        return WAY_SHM_REMAP;
    shmdt(b->p);
    return block_gone(b, WAY_SHMDT);
}
