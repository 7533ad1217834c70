/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * C1: releases that libc and the loader make by themselves, which interposed
 * symbols do not see. Each row: register, release, get the same address back,
 * write new data; a device has to see it everywhere.
 * Usage: case_c1 [--expect-fault] [--callback]
 */
#include <dlfcn.h>
#include <malloc.h>

#include "case.h"
#include "case_uring.h"

#define MIB (1ul << 20)
#define BLOCK 60000ul
#define BLOCKS 64

static char *held; /* the block, while the row has it */
static char *area; /* its whole pages that are registered */
static size_t area_len;
static char *block[BLOCKS];
static void *library;

static char *kept(char *p)
{
    KEEP(p);
    need(p != NULL, "memory");
    return p;
}

static void use(char *p, size_t len)
{
    uintptr_t first = ((uintptr_t)p + PAGE - 1) & -PAGE;
    uintptr_t last = ((uintptr_t)p + len) & -PAGE;

    held = p;
    area = (char *)first;
    area_len = last - first;
}

/* Pages of the area that are not there now are mapped there. */
static bool map_again(void)
{
    bool good = true;

    for (size_t at = 0; at < area_len; at += PAGE) {
        uint64_t value;

        if (!pin_read(area + at, &value))
            good &= mmap(area + at, PAGE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
                         0) == area + at;
    }
    return good;
}

/* The same call as before gives the same address; or else map it there. */
static bool same_or_map(char *p)
{
    return p == held || map_again();
}

static void get_mib(void)
{
    use(kept(malloc(MIB)), MIB);
}

static void put_block(void)
{
    free(held);
}

static bool again_mib(void)
{
    return same_or_map(kept(malloc(MIB)));
}

static void get_blocked(void)
{
    char *low, *high;

    /* so that it has to move: no room on either side */
    low = kept(malloc(MIB));
    get_mib();
    high = kept(malloc(MIB));
    KEEP(low);
    KEEP(high);
}

static void grow(void)
{
    char *p = kept(realloc(held, 64 * MIB));

    need(p != held, "a block that moves");
}

static void get_four(void)
{
    use(kept(malloc(4 * MIB)), 4 * MIB);
}

static void shrink(void)
{
    held = kept(realloc(held, 2 * MIB));
}

static void get_blocks(void)
{
    for (int i = 0; i < BLOCKS; i++)
        memset(block[i] = kept(malloc(BLOCK)), 1, BLOCK);
    use(block[20], BLOCK);
}

static void trim_hole(void)
{
    for (int i = 16; i < 32; i++)
        free(block[i]);
    malloc_trim(0);
}

static bool again_hole(void)
{
    for (int i = 16; i < 32; i++)
        block[i] = kept(malloc(BLOCK));
    return same_or_map(block[20]);
}

static void get_top(void)
{
    use(block[62], BLOCK);
}

static void free_top(void)
{
    for (int i = BLOCKS - 1; i > 32; i--)
        free(block[i]); /* each joins the top; past 128 KiB the break falls */
}

static bool again_top(void)
{
    for (int i = 33; i < BLOCKS; i++)
        block[i] = kept(malloc(BLOCK));
    return same_or_map(block[62]);
}

static void get_aligned(void)
{
    void *p = NULL;

    need(posix_memalign(&p, 2 * MIB, MIB) == 0, "posix_memalign");
    use(kept(p), MIB);
}

static bool again_aligned(void)
{
    void *p = NULL;

    need(posix_memalign(&p, 2 * MIB, MIB) == 0, "posix_memalign");
    return same_or_map(kept(p));
}

static char *open_library(void)
{
    char path[4352];
    ssize_t n = readlink("/proc/self/exe", path, 4096);

    while (n > 0 && path[n - 1] != '/')
        n--;
    strcpy(path + n, "victims/lib_release.so");
    library = dlopen(path, RTLD_NOW);
    need(library != NULL, path);
    return kept(dlsym(library, "lib_release_bss"));
}

static void get_bss(void)
{
    use(open_library(), 64 * PAGE);
}

static void put_bss(void)
{
    need(dlclose(library) == 0, "dlclose");
}

static bool again_bss(void)
{
    return open_library() == held;
}

static const struct row {
    const char *name;
    void (*get)(void);
    void (*release)(void);
    bool (*again)(void);
} rows[] = {
    {"free(1 MiB)", get_mib, put_block, again_mib},
    {"realloc up", get_blocked, grow, map_again},
    {"realloc down", get_four, shrink, map_again},
    {"malloc_trim, an inner hole", get_blocks, trim_hole, again_hole},
    {"heap shrink by free", get_top, free_top, again_top},
    {"posix_memalign, free", get_aligned, put_block, again_aligned},
    {"dlclose, dlopen: .bss", get_bss, put_bss, again_bss},
};

static void run(const struct row *row)
{
    size_t stale;

    row->get();
    memset(area, 'o', area_len);
    need(cache_stale(area, area_len) == 0, "a fresh registration");
    row->release();
    if (!check(row->again(), "%s: the same address again", row->name))
        return;
    memset(area, 'n', area_len);
    stale = cache_stale(area, area_len);
    must(stale == 0, "C1 %s: %zu of %zu pages stale", row->name, stale,
         area_len / PAGE);
}

int main(int argc, char **argv)
{
    (void)argc;
    argv = case_begin_preloaded(argv);
    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* and it stays there */
    cache_start(argv[1] ? LAPSE_CALLBACK : LAPSE_POLL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run(&rows[i]);
    cache_stop();
    return api_end();
}
