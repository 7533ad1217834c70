/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * C3: plugins bound past everybody's preload, by RTLD_DEEPBIND and in a
 * namespace of their own, free watched blocks; pointers cross between host and
 * plugin. Never an abort; what they free is told, or lapse_coverage() says that
 * it is not. Run with MALLOC_MMAP_THRESHOLD_=131072, or a block of one libc's
 * heap would be the other's: that aborts by itself.
 * Usage: case_c3 [--expect-fault]
 */
#include <dlfcn.h>

#include "case.h"
#include "case_uring.h"

#define LEN (1ul << 20)
#define ROUNDS 50

typedef void *malloc_type(size_t);
typedef void free_type(void *);

/* Where to get the same address, whoever's malloc takes another. */
static bool map_again(char *p)
{
    return mmap(p, LEN, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == p;
}

/* Returns the rounds in which the device saw old data. */
static unsigned rounds(malloc_type *get, free_type *put)
{
    unsigned bad = 0;

    for (int i = 0; i < ROUNDS; i++) {
        char *block = get(LEN);
        char *p = (char *)(((uintptr_t)block + PAGE - 1) & -PAGE);

        need(block != NULL, "malloc");
        memset(block, 'o', LEN);
        cache_lookup(p, LEN - PAGE);
        put(block);
        need(map_again(p), "the same address again");
        memset(p, 'n', LEN);
        bad += cache_stale(p, LEN - PAGE) != 0;
        munmap(p, LEN);
    }
    return bad;
}

static void host_free(void *p)
{
    free(p);
}

static void *host_malloc(size_t len)
{
    return malloc(len);
}

static void test_plugin(void *plugin, const char *kind, const char *path)
{
    malloc_type *get;
    free_type *put;
    unsigned bad[3];

    need(plugin != NULL, kind);
    *(void **)&get = dlsym(plugin, "plugin_malloc");
    *(void **)&put = dlsym(plugin, "plugin_free");
    need(get && put, "the plugin's functions");
    bad[0] = rounds(get, put);
    bad[1] = rounds(host_malloc, put);
    bad[2] = rounds(get, host_free);
    if (!expect_fault && bad[0] + bad[1] + bad[2] && path)
        check(said_uncovered(path), "C3 %s: not told, and said so", kind);
    else
        must(bad[0] + bad[1] + bad[2] == 0,
             "C3 %s: rounds with old data: plugin's block %u, given to it %u, "
             "taken from it %u, of %d",
             kind, bad[0], bad[1], bad[2], ROUNDS);
}

int main(int argc, char **argv)
{
    char path[4352];
    ssize_t n = readlink("/proc/self/exe", path, 4096);

    (void)argc;
    case_begin_preloaded(argv);
    while (n > 0 && path[n - 1] != '/')
        n--;
    strcpy(path + n, "victims/lib_plugin.so");
    cache_start(LAPSE_POLL);
    test_plugin(dlopen(path, RTLD_NOW | RTLD_DEEPBIND), "RTLD_DEEPBIND", NULL);
    test_plugin(dlmopen(LM_ID_NEWLM, path, RTLD_NOW), "dlmopen", "dlmopen");
    cache_stop();
    return api_end();
}
