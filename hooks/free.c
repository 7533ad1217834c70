/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An allocator is known by a function that no other one defines, whatever its
 * library is called: it may be part of the program.
 *
 * The size of a block is asked of the allocator itself, in the middle of
 * somebody's free(). What we found in each (Debian 12): glibc keeps it in
 * front of the block. tcmalloc, mimalloc and tbbmalloc look it up in tables
 * and page headers, with loads only. So does jemalloc 5.3; on a thread that
 * has not allocated yet it makes the thread's state first, as the free() that
 * follows would. A pointer that is not theirs gets the answer 0 from tbbmalloc,
 * which its proxy then passes on to libc's free; with the others it is the
 * program's error, and as fatal in their free() as in their size.
 *
 * A function that begins with a jump (operator delete of jemalloc, most of
 * mimalloc's) goes to another one of the table and is left alone; so are the
 * functions of tbbmalloc's proxy, which call the library. mimalloc's realloc
 * gives the old block to its mi_free. Heaps, arenas and pools that are thrown
 * away as a whole (mi_heap_destroy, rml::pool_destroy) are not told by block.
 */
#include "hooks/free.h"

#include <string.h>

#include "hooks/coverage.h"
#include "hooks/free_hook.h"
#include "hooks/module.h"
#include "hooks/patch.h"
#include "hooks/relocate.h"
#include "shim/config.h"
#include "shim/log.h"
#include "shim/release.h"

#define MODULES 4    /* that hold one allocator */
#define STRANGERS 16 /* that define free at all */
#define FUNCTIONS 64
#define NAMES 20

_Static_assert(NAMES <= RELOCATE_MOST, "those of one library share a page");

struct name {
    const char *name;
    enum free_kind kind;
};

static const struct allocator {
    const char *sign;   /* only it defines this */
    const char *usable; /* NULL: chunks of glibc */
    struct name names[NAMES];
} allocators[] = {
    {"gnu_get_libc_version",
     NULL,
     {{"free", FREE_BLOCK}, {"realloc", FREE_RESIZE}}},
    {"mallctl",
     "malloc_usable_size",
     {{"free", FREE_BLOCK},
      {"dallocx", FREE_BLOCK},
      {"sdallocx", FREE_BLOCK},
      {"realloc", FREE_RESIZE},
      {"rallocx", FREE_RESIZE},
      {"xallocx", FREE_IN_PLACE},
      {"_ZdlPv", FREE_BLOCK},
      {"_ZdaPv", FREE_BLOCK},
      {"_ZdlPvm", FREE_BLOCK},
      {"_ZdaPvm", FREE_BLOCK},
      {"_ZdlPvRKSt9nothrow_t", FREE_BLOCK},
      {"_ZdaPvRKSt9nothrow_t", FREE_BLOCK},
      {"_ZdlPvSt11align_val_t", FREE_BLOCK},
      {"_ZdaPvSt11align_val_t", FREE_BLOCK},
      {"_ZdlPvmSt11align_val_t", FREE_BLOCK},
      {"_ZdaPvmSt11align_val_t", FREE_BLOCK},
      {"_ZdlPvSt11align_val_tRKSt9nothrow_t", FREE_BLOCK},
      {"_ZdaPvSt11align_val_tRKSt9nothrow_t", FREE_BLOCK}}},
    {"tc_free",
     "tc_malloc_size",
     {{"tc_free", FREE_BLOCK},
      {"tc_cfree", FREE_BLOCK},
      {"tc_free_sized", FREE_BLOCK},
      {"tc_realloc", FREE_RESIZE},
      {"tc_delete", FREE_BLOCK},
      {"tc_deletearray", FREE_BLOCK},
      {"tc_delete_sized", FREE_BLOCK},
      {"tc_deletearray_sized", FREE_BLOCK},
      {"tc_delete_nothrow", FREE_BLOCK},
      {"tc_deletearray_nothrow", FREE_BLOCK},
      {"tc_delete_aligned", FREE_BLOCK},
      {"tc_deletearray_aligned", FREE_BLOCK},
      {"tc_delete_sized_aligned", FREE_BLOCK},
      {"tc_deletearray_sized_aligned", FREE_BLOCK},
      {"tc_delete_aligned_nothrow", FREE_BLOCK},
      {"tc_deletearray_aligned_nothrow", FREE_BLOCK}}},
    {"mi_free", "mi_usable_size", {{"mi_free", FREE_BLOCK}}},
    {"scalable_free",
     "__TBB_malloc_safer_msize",
     {{"scalable_free", FREE_BLOCK},
      {"scalable_aligned_free", FREE_BLOCK},
      {"scalable_realloc", FREE_RESIZE},
      {"scalable_aligned_realloc", FREE_RESIZE},
      {"__TBB_malloc_safer_free", FREE_BLOCK},
      {"__TBB_malloc_safer_realloc", FREE_RESIZE},
      {"__TBB_malloc_safer_aligned_realloc", FREE_RESIZE}}},
};
#define ALLOCATORS (sizeof(allocators) / sizeof(allocators[0]))

static struct free_function functions[FUNCTIONS];
static unsigned functions_used;

/* One library, while it is patched. */
struct work {
    const struct patcher *patcher;
    const struct module *module;
    const struct allocator *allocator;
    free_usable *usable;
    struct relocation all[NAMES];
    size_t n;
    const char *why; /* NULL, or why not all of it is seen */
};

static const char *where(const struct module *module)
{
    return module->soname ? module->soname : "the program";
}

static bool is_planned(const struct work *w, const uint8_t *code)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->all[i].code == code)
            return true;
    return false;
}

static bool is_jump(const uint8_t *code, size_t size)
{
    struct arch_insn insn;

    return arch_decode(code, size, &insn) && insn.ends && insn.target;
}

static void plan(struct work *w, const struct name *name)
{
    struct relocation *r = &w->all[w->n];
    struct free_function *f = &functions[functions_used];
    size_t size;
    const uint8_t *code = module_function(w->module, name->name, &size);

    if (!code || is_planned(w, code) || is_jump(code, size))
        return;
    if (functions_used == FUNCTIONS) {
        w->why = "this library has room for fewer functions";
        return;
    }
    f->usable = w->usable;
    f->kind = name->kind;
    *r = (struct relocation){.code = code,
                             .size = size,
                             .real = &f->real,
                             .detour = {.watched = &lapse_free,
                                        .argument = f,
                                        .hook = (uintptr_t)free_hook,
                                        .header = !w->usable}};
    w->n++;
    functions_used++;
}

/* False: it has no way to ask for the size of a block. */
static bool find_usable(struct work *w)
{
    size_t size;

    if (!w->allocator->usable)
        return true;
    w->usable = (free_usable *)(uintptr_t)module_function(
        w->module, w->allocator->usable, &size);
    return w->usable;
}

/* Returns how many of its functions were patched. */
static size_t cover_module(struct work *w)
{
    size_t patched = 0;

    if (!find_usable(w)) {
        w->why = "it does not say how long a block is";
        return 0;
    }
    for (const struct name *n = w->allocator->names;
         n < w->allocator->names + NAMES && n->name; n++)
        plan(w, n);
    relocate(w->patcher, w->module, w->all, w->n);
    for (size_t i = 0; i < w->n; i++) {
        if (w->all[i].why)
            w->why = w->all[i].why;
        else
            patched++;
    }
    return patched;
}

/* *why: of the last one that was not. */
static size_t cover_allocator(const struct patcher *patcher,
                              const struct allocator *allocator,
                              const char **why)
{
    struct module modules[MODULES];
    size_t n = module_defining(allocator->sign, modules, MODULES);
    size_t patched = 0;

    for (size_t i = 0; i < n; i++) {
        struct work w = {
            .patcher = patcher, .module = &modules[i], .allocator = allocator};

        patched += cover_module(&w);
        coverage_add("free", where(&modules[i]),
                     w.why ? LAPSE_UNCOVERED : LAPSE_ENTRY, w.why ? w.why : "");
        if (w.why)
            *why = w.why;
    }
    return patched;
}

/* Who has a free that is none of those we know? */
static void name_strangers(void)
{
    struct module modules[STRANGERS];
    size_t n = module_defining("free", modules, STRANGERS), size;

    for (size_t i = 0; i < n; i++) {
        bool known = module_function(&modules[i], "__TBB_malloc_proxy", &size);

        for (size_t k = 0; k < ALLOCATORS && !known; k++)
            known = module_function(&modules[i], allocators[k].sign, &size);
        if (!known)
            coverage_add("free", where(&modules[i]), LAPSE_UNCOVERED,
                         "its free is not of an allocator that is known here");
    }
}

void free_patch(void)
{
    const char *why = "no allocator is loaded that is known here";
    struct patcher patcher;
    size_t patched = 0;

    if (!lapse_config.free)
        return;
    patcher_open(&patcher);
    for (size_t i = 0; i < ALLOCATORS; i++)
        patched += cover_allocator(&patcher, &allocators[i], &why);
    patcher_close(&patcher);
    name_strangers();
    coverage_set("free", "malloc", patched ? LAPSE_ENTRY : LAPSE_UNCOVERED,
                 patched ? "" : why);
    lapse_free_seen = patched;
    release_hull_reset(); /* all is near, if frees are to be counted */
    if (!patched)
        log_warn("LAPSE_FREE=1: no free can be patched (%s); "
                 "LAPSE_REASON_FREE is not supported in this process",
                 why);
}
