/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kinds of memory of torture rcache. Each has a function that makes a
 * block and one that releases it, all or in part, in one of its ways; what is
 * left then, or new at the address, stays in the block (p NULL: nothing).
 * make: false, nothing to be had now; the lowest 8 bits of its number are
 * spent.
 */
#ifndef LAPSE_TORTURE_RCACHE_BLOCKS_H
#define LAPSE_TORTURE_RCACHE_BLOCKS_H

#include "torture_rcache.h"
#include "torture_rcache_ways.h"

#define PAGE ((size_t)4096)
#define BLOCK_MOST (64 * PAGE)
#define RCACHE_STACKS_KEPT ((size_t)1 << 20) /* bytes, by glibc */

struct block_kind {
    const char *name;
    char *(*make)(struct block *b, uint64_t r);
    enum rcache_way (*release)(struct block *b, unsigned way);
};

/* New memory at the address, or where the kernel likes; NULL: none. */
char *block_map(void *at, size_t len, int flags, int fd);
/* Nothing is left of it. */
enum rcache_way block_gone(struct block *b, enum rcache_way way);
enum rcache_way block_unmap(struct block *b);

/* torture_rcache_heap.c */
char *make_small(struct block *b, uint64_t r);
char *make_large(struct block *b, uint64_t r);
char *make_aligned(struct block *b, uint64_t r);
enum rcache_way release_heap(struct block *b, unsigned way);
enum rcache_way release_array(struct block *b, unsigned way);
char *make_break(struct block *b, uint64_t r);
enum rcache_way release_break(struct block *b, unsigned way);
bool heap_start(void);     /* is there a jemalloc? */
void heap_finish(void);    /* count what malloc did by itself */

/* torture_rcache_maps.c */
char *make_map(struct block *b, uint64_t r);
enum rcache_way release_map(struct block *b, unsigned way);
enum rcache_way release_raw(struct block *b, unsigned way);
enum rcache_way release_advised(struct block *b, unsigned way);
enum rcache_way release_moved(struct block *b, unsigned way);

/* torture_rcache_files.c */
char *make_memfd(struct block *b, uint64_t r);
enum rcache_way release_memfd(struct block *b, unsigned way);
char *make_disk(struct block *b, uint64_t r);
enum rcache_way release_disk(struct block *b, unsigned way);
char *make_sysv(struct block *b, uint64_t r);
enum rcache_way release_sysv(struct block *b, unsigned way);

/* torture_rcache_loaded.c */
char *make_library(struct block *b, uint64_t r);
enum rcache_way release_library(struct block *b, unsigned way);
char *make_namespace(struct block *b, uint64_t r);
enum rcache_way release_namespace(struct block *b, unsigned way);
void loaded_start(const char *library);

/* torture_rcache_stack.c */
char *make_stack(struct block *b, uint64_t r);
enum rcache_way release_stack(struct block *b, unsigned way);

#endif
