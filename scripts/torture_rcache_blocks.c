/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of every kind, and the ways in which it goes (DESIGN 7). */
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lapse.h"
#include "torture_rcache.h"

#define PAGE ((size_t)4096)
#define LEN_MOST (64 * PAGE)

enum kind {
    SMALL,   /* malloc: from an arena */
    LARGE,   /* malloc: a mapping of its own, in glibc */
    ALIGNED, /* posix_memalign */
    ARRAY,   /* malloc, to be resized by realloc */
    MAPPED,  /* mmap, private */
    RAW,     /* mmap and munmap by syscall() */
    SHARED,  /* mmap of a memfd */
    SYSV,    /* shmat */
    LIBRARY, /* .bss of a library */
    PART     /* mmap, shrunk and moved by mremap */
};
const char *const block_kind_name[BLOCK_KINDS] = {
    "malloc small", "malloc large", "memalign", "realloc",   "mmap",
    "syscall",      "memfd",        "shmat",    ".bss of a library", "mremap"};

static const char *library;
static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
static bool file_covered;

uint64_t rcache_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* Holes in files are used where the library says that it sees them. */
void blocks_start(const char *path)
{
    struct lapse_coverage row[256];
    int n = lapse_coverage(row, 256);

    library = path;
    for (int i = 0; i < n && i < 256; i++)
        if (!strcmp(row[i].path, "fallocate") &&
            row[i].mechanism == LAPSE_SITE)
            file_covered = true;
}

static char *map(void *at, size_t len, int flags, int fd)
{
    char *p = mmap(at, len, PROT_READ | PROT_WRITE,
                   flags | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);

    return p == MAP_FAILED ? NULL : p;
}

static char *from_memfd(struct block *b)
{
    b->fd = memfd_create("torture", MFD_CLOEXEC);
    if (b->fd < 0 || ftruncate(b->fd, (off_t)b->len))
        return NULL;
    return map(NULL, b->len, MAP_SHARED, b->fd);
}

static char *from_sysv(struct block *b, void *at, int flags)
{
    int id = shmget(IPC_PRIVATE, b->len, IPC_CREAT | 0600);
    char *p = id < 0 ? (char *)-1 : shmat(id, at, flags);

    if (id >= 0)
        shmctl(id, IPC_RMID, NULL);
    return p == (char *)-1 ? NULL : p;
}

static char *from_library(struct block *b)
{
    char *p;

    if (pthread_mutex_trylock(&library_lock))
        return NULL;
    b->handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    p = b->handle ? dlsym(b->handle, "torture_library_memory") : NULL;
    if (!p)
        rcache_trouble("the library of torture rcache cannot be loaded", 0);
    b->len = RCACHE_LIBRARY_MEMORY;
    return p;
}

static char *aligned(size_t len)
{
    void *p;

    return posix_memalign(&p, PAGE, len) ? NULL : p;
}

bool block_make(struct block *b, uint64_t *random)
{
    uint64_t r = rcache_random(random);

    *b = (struct block){.fd = -1, .kind = r % BLOCK_KINDS};
    b->len = PAGE + (r >> 8) % (LEN_MOST / PAGE) * PAGE;
    switch (b->kind) {
    case SMALL:
        b->len = 3000 + (r >> 8) % 90000;
        b->p = malloc(b->len);
        break;
    case LARGE:
    case ARRAY:
        b->p = malloc(b->len);
        break;
    case ALIGNED:
        b->p = aligned(b->len);
        break;
    case SHARED:
        b->p = from_memfd(b);
        break;
    case SYSV:
        b->p = from_sysv(b, NULL, 0);
        break;
    case LIBRARY:
        b->p = from_library(b);
        break;
    default:
        b->p = map(NULL, b->len, MAP_PRIVATE, -1);
    }
    return b->p != NULL;
}

static const char *gone(struct block *b, const char *how)
{
    if (b->fd >= 0)
        close(b->fd);
    b->p = NULL;
    return how;
}

static const char *mapped(struct block *b, unsigned way)
{
    char *target;

    switch (way % 7) {
    case 0:
        madvise(b->p, b->len, MADV_DONTNEED);
        return "madvise DONTNEED";
    case 1:
        map(b->p, b->len, MAP_PRIVATE | MAP_FIXED, -1);
        return "mmap MAP_FIXED over it";
    case 2:
        target = map(NULL, b->len, MAP_PRIVATE, -1);
        if (target && mremap(target, b->len, b->len,
                             MREMAP_MAYMOVE | MREMAP_FIXED, b->p) == b->p)
            return "mremap MREMAP_FIXED onto it";
        break;
    case 3:
        madvise(b->p + b->len / 2, b->len / 2, MADV_DONTNEED);
        return "madvise DONTNEED of half of it";
    case 4:
        target = mremap(b->p, b->len, b->len,
                        MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
        if (target == MAP_FAILED)
            break;
        munmap(target, b->len);
        return "mremap DONTUNMAP";
    case 5:
        posix_madvise(b->p, b->len, POSIX_MADV_DONTNEED); /* not a release */
        madvise(b->p, b->len, MADV_DONTNEED_LOCKED);
        return "madvise DONTNEED_LOCKED";
    }
    munmap(b->p, b->len);
    return gone(b, "munmap");
}

/* Where it leaves the address, another thread may be faster to get it. */
static const char *shrunk(struct block *b, unsigned way)
{
    char *to, *again;

    if (way % 3 == 0 && b->len > PAGE) {
        mremap(b->p, b->len, PAGE, 0);
        again = map(b->p + PAGE, b->len - PAGE,
                    MAP_PRIVATE | MAP_FIXED_NOREPLACE, -1);
        if (!again)
            b->len = PAGE;
        return "mremap shrink";
    }
    to = way % 3 == 1 ? map(NULL, b->len, MAP_PRIVATE, -1) : NULL;
    if (!to || mremap(b->p, b->len, b->len, MREMAP_MAYMOVE | MREMAP_FIXED,
                      to) != to) {
        munmap(b->p, b->len);
        return gone(b, "munmap");
    }
    munmap(to, b->len);
    again = map(b->p, b->len, MAP_PRIVATE | MAP_FIXED_NOREPLACE, -1);
    return again ? "mremap away" : gone(b, "mremap away");
}

static const char *shared(struct block *b, unsigned way)
{
    int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

    switch (way % (file_covered ? 4 : 2)) {
    case 0:
        madvise(b->p, b->len, MADV_REMOVE);
        return "madvise REMOVE";
    case 2:
        if (fallocate(b->fd, punch, 0, (off_t)b->len))
            break;
        return "fallocate PUNCH_HOLE";
    case 3:
        if (ftruncate(b->fd, 0) || ftruncate(b->fd, (off_t)b->len))
            break;
        return "ftruncate";
    }
    munmap(b->p, b->len);
    return gone(b, "munmap of a file");
}

static const char *heap(struct block *b, unsigned way)
{
    if (b->kind == ARRAY && way % 2) {
        size_t len = b->len > 8 * PAGE ? b->len / 2 : b->len * 4;
        char *p = realloc(b->p, len);

        if (p) {
            b->p = p;
            b->len = len;
        }
        return "realloc";
    }
    free(b->p);
    return gone(b, "free");
}

const char *block_release(struct block *b, uint64_t *random)
{
    unsigned way = (unsigned)rcache_random(random);

    switch (b->kind) {
    case MAPPED:
        return mapped(b, way);
    case RAW:
        syscall(SYS_munmap, b->p, b->len);
        return gone(b, "syscall(SYS_munmap)");
    case SHARED:
        return shared(b, way);
    case SYSV:
        if (way % 2 && from_sysv(b, b->p, SHM_REMAP))
            return "shmat SHM_REMAP over it";
        shmdt(b->p);
        return gone(b, "shmdt");
    case LIBRARY:
        dlclose(b->handle);
        pthread_mutex_unlock(&library_lock);
        return gone(b, "dlclose");
    case PART:
        return shrunk(b, way);
    default:
        return heap(b, way);
    }
}
