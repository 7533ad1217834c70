/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of every kind, and the ways in which it goes (DESIGN 7). */
#include <sys/mman.h>
#include <unistd.h>

#include "torture.h"
#include "torture_rcache_blocks.h"

static const struct block_kind kind[] = {
    /* Those first are left out where malloc and stacks are a sanitizer's. */
    {"malloc small", make_small, release_heap},
    {"malloc large", make_large, release_heap},
    {"memalign", make_aligned, release_heap},
    {"realloc", make_large, release_array},
    {"malloc in a dlmopen", make_namespace, release_namespace},
    {"stack of a thread", make_stack, release_stack},
#define FOREIGN 6
    {"brk", make_break, release_break},
    {"mmap", make_map, release_map},
    {"mmap to be advised", make_map, release_advised},
    {"mmap to be moved", make_map, release_moved},
    {"mmap past libc", make_map, release_raw},
    {"memfd", make_memfd, release_memfd},
    {"file, private", make_disk, release_disk},
    {"shmat", make_sysv, release_sysv},
    {".bss of a library", make_library, release_library},
};
#define KINDS (sizeof(kind) / sizeof(kind[0]))

uint64_t rcache_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

void blocks_start(const char *library)
{
    ways_start(&rcache_board->ways);
    loaded_start(library);
}

void blocks_finish(void)
{
    heap_finish();
}

char *block_map(void *at, size_t len, int flags, int fd)
{
    char *p = mmap(at, len, PROT_READ | PROT_WRITE,
                   flags | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);

    return p == MAP_FAILED ? NULL : p;
}

enum rcache_way block_gone(struct block *b, enum rcache_way way)
{
    if (b->fd >= 0)
        close(b->fd);
    b->p = NULL;
    return way;
}

enum rcache_way block_unmap(struct block *b)
{
    munmap(b->p, b->len);
    return block_gone(b, WAY_MUNMAP);
}

bool block_make(struct block *b, uint64_t *random)
{
    unsigned first = TORTURE_OWN_MALLOC ? FOREIGN : 0;
    uint64_t r = rcache_random(random);

    *b = (struct block){.fd = -1, .kind = first + r % 256 % (KINDS - first)};
    b->len = PAGE + (r >> 8) % (BLOCK_MOST / PAGE) * PAGE;
    b->p = kind[b->kind].make(b, r >> 8);
    if (!b->p && b->fd >= 0)
        close(b->fd);
    return b->p != NULL;
}

const char *block_kind_name(const struct block *b)
{
    return kind[b->kind].name;
}

const char *block_release(struct block *b, uint64_t *random)
{
    enum rcache_way way =
        kind[b->kind].release(b, (unsigned)rcache_random(random));

    way_fired(way, 1);
    return way_name(way);
}
