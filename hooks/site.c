/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finding the sites. libc has one per system call, in the function of that
 * name, which everything inside libc calls too; syscall() has one for all;
 * ld.so has its own, and no symbols. What looks in any way unlike what we
 * know is left as it is, and the coverage table says so.
 */
#include "hooks/site.h"

#include <dlfcn.h>
#include <string.h>

#include "hooks/arch.h"
#include "hooks/coverage.h"
#include "hooks/hook.h"
#include "hooks/module.h"
#include "hooks/patch.h"
#include "hooks/window.h"
#include "shim/log.h"

#define NR_ANY (-1)         /* the site in syscall() */
#define BEGIN_ALIGN 16      /* of functions */
#define BEGIN_DISTANCE 512  /* from a function's begin to its site, in ld.so */
#define FOREIGN_RESYNC 16   /* bytes of broken code behind a foreign patch */
#define FOREIGN_TEXTS 8
#define SITES_AT_ONCE 3

/* A site on its way to being patched. */
struct place {
    const char *path;
    const struct module *module;
    int nr;
    hook_body *body;
    const uint8_t *code; /* where to look for it: its function, or all text */
    size_t size;
    const uint8_t *site;
    unsigned found; /* sites like it in that code */
    enum lapse_mechanism mechanism;
    const char *detail; /* "", or with UNCOVERED why */
};

static void refuse(struct place *place, const char *why)
{
    place->mechanism = LAPSE_UNCOVERED;
    place->detail = why;
}

static void append(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);
    size_t n = strnlen(more, size - 1 - used);

    memcpy(text + used, more, n);
    text[used + n] = 0;
}

/* "what BY whom", kept for ever: coverage rows point at it. */
static const char *foreign_text(const char *what, uintptr_t target)
{
    static char texts[FOREIGN_TEXTS][128];
    static unsigned used;
    Dl_info info;
    char *text;

    if (used == FOREIGN_TEXTS)
        return what;
    text = texts[used++];
    append(text, sizeof(texts[0]), what);
    append(text, sizeof(texts[0]), " of ");
    if (target && dladdr((void *)target, &info) && info.dli_fname)
        append(text, sizeof(texts[0]), info.dli_fname);
    else
        append(text, sizeof(texts[0]), "unknown origin");
    return text;
}

/* No site where there should be one: did somebody write over it? */
static const char *why_missing(const struct place *place)
{
    uint8_t bytes[ARCH_SITE];
    uintptr_t target = 0;

    arch_site_bytes(bytes, place->nr);
    if (arch_foreign(place->code, place->size, &target))
        return foreign_text("overwritten by a patch", target);
    for (size_t i = 0; i + ARCH_SITE <= place->size; i++) {
        const uint8_t *at = place->code + i;

        if (!memcmp(at + ARCH_WINDOW, bytes + ARCH_WINDOW, ARCH_ENTER) &&
            arch_foreign(at, place->size - i, &target))
            return foreign_text("overwritten by a patch", target);
    }
    return "its site is not of a known form";
}

/*
 * Look through the code that the places have in common, once for all: ld.so's
 * text is long. All sites end in the same instruction, rare but for its last
 * byte, which memchr() is quick to find.
 */
static void find_sites(struct place *places, size_t n)
{
    uint8_t bytes[SITES_AT_ONCE][ARCH_SITE];
    const uint8_t *at = places->code + ARCH_SITE - 1;
    const uint8_t *end = places->code + places->size;

    for (size_t i = 0; i < n; i++)
        arch_site_bytes(bytes[i], places[i].nr);
    for (; at < end; at++) {
        const uint8_t *site;

        at = memchr(at, bytes[0][ARCH_SITE - 1], (size_t)(end - at));
        if (!at)
            return;
        site = at - (ARCH_SITE - 1);
        for (size_t i = 0; i < n; i++) {
            if (memcmp(site, bytes[i], ARCH_SITE))
                continue;
            places[i].site = site;
            places[i].found++;
        }
    }
}

static bool has_one_site(struct place *place)
{
    if (!place->found)
        refuse(place, why_missing(place));
    else if (place->found > 1)
        refuse(place, "it has more than one site");
    return place->found == 1;
}

/* In libc: the function's bounds are known, its begin may be patched. */
static bool check_function(struct place *place)
{
    uintptr_t target = 0;
    size_t skip = arch_foreign(place->code, place->size, &target);
    size_t limit = skip ? skip + FOREIGN_RESYNC : 1;
    const char *why = NULL;

    for (size_t from = skip; from < limit && from < place->size; from++) {
        why = window_check(place->code + from, place->size - from, true,
                           place->site);
        if (!why)
            break;
    }
    if (why)
        refuse(place, why);
    else if (skip) {
        place->mechanism = LAPSE_CHAINED;
        place->detail = foreign_text("behind a patch", target);
    }
    return !why;
}

/* In ld.so: look for where the function begins, backward from its site. */
static bool check_text(struct place *place)
{
    const uint8_t *begin = (const uint8_t *)((uintptr_t)place->site &
                                             -(uintptr_t)BEGIN_ALIGN);
    const uint8_t *end = place->code + place->size;
    const char *why = "its function's begin was not found";

    for (; begin > place->code + BEGIN_ALIGN &&
           place->site - begin < BEGIN_DISTANCE; begin -= BEGIN_ALIGN) {
        size_t size = (size_t)(end - begin);

        if (!arch_begins(begin))
            continue;
        why = window_check(begin, size < WINDOW_LIMIT ? size : WINDOW_LIMIT,
                           false, place->site);
        if (!why)
            return true;
    }
    refuse(place, why);
    return false;
}

static void patch_site(struct place *place, const struct patcher *patcher)
{
    uint8_t old[ARCH_SITE], fresh[ARCH_WINDOW];
    int slot = arch_slot_take((uintptr_t)place->site, place->body);
    uintptr_t entry = slot < 0 ? 0 : near_entry((uintptr_t)place->site, slot);
    const char *why;

    if (slot < 0) {
        refuse(place, "this library has entries for fewer sites");
        return;
    }
    if (!entry) {
        refuse(place, "no page near by can be made for the way to its hook");
        return;
    }
    arch_site_bytes(old, place->nr);
    arch_jump(fresh, (uintptr_t)place->site, entry);
    why = patch_window(patcher, place->module, (uint8_t *)place->site, old,
                       fresh);
    if (why)
        refuse(place, why);
}

static void cover_function(struct place *place, const struct patcher *patcher)
{
    place->code = module_function(place->module, place->path, &place->size);
    if (place->code) {
        find_sites(place, 1);
        if (has_one_site(place) && check_function(place))
            patch_site(place, patcher);
    } else if (!strcmp(place->path, "process_madvise")) {
        /* Newer than the oldest libc we meet; the others always were there. */
        place->mechanism = LAPSE_ABSENT;
    } else
        refuse(place, "libc defines no function of this name");
}

static void cover_libc(const struct patcher *patcher)
{
    struct module libc;
    bool found = module_find(COVERAGE_LIBC, &libc);

    for (int i = 0; i <= HOOK_COUNT; i++) {
        bool any = i == HOOK_COUNT;
        struct place place = {.path = any ? "syscall" : lapse_hooks[i].name,
                              .module = &libc,
                              .nr = any ? NR_ANY : lapse_hooks[i].nr,
                              .body = any ? NULL : lapse_hooks[i].body,
                              .mechanism = LAPSE_SITE,
                              .detail = ""};

        if (found)
            cover_function(&place, patcher);
        else
            refuse(&place, "no libc.so.6 is loaded: static, or not glibc");
        coverage_set(place.path, COVERAGE_LIBC, place.mechanism, place.detail);
    }
}

static void cover_loader(const struct patcher *patcher)
{
    static const enum lapse_path paths[SITES_AT_ONCE] = {
        LAPSE_PATH_MUNMAP, LAPSE_PATH_MMAP, LAPSE_PATH_BRK};
    struct module loader = {.text = NULL};
    bool found = module_find(COVERAGE_LOADER, &loader);
    struct place places[SITES_AT_ONCE];

    for (int i = 0; i < SITES_AT_ONCE; i++)
        places[i] = (struct place){.path = lapse_hooks[paths[i]].name,
                                   .module = &loader,
                                   .nr = lapse_hooks[paths[i]].nr,
                                   .body = lapse_hooks[paths[i]].body,
                                   .code = loader.text,
                                   .size = loader.text_size,
                                   .mechanism = LAPSE_SITE,
                                   .detail = ""};
    if (found)
        find_sites(places, SITES_AT_ONCE);
    for (struct place *p = places; p < places + SITES_AT_ONCE; p++) {
        if (!found)
            refuse(p, "no " COVERAGE_LOADER " is loaded");
        else if (has_one_site(p) && check_text(p))
            patch_site(p, patcher);
        coverage_set(p->path, COVERAGE_LOADER, p->mechanism, p->detail);
    }
}

void sites_patch(void)
{
    struct patcher patcher;

    patcher_open(&patcher);
    cover_libc(&patcher);
    cover_loader(&patcher);
    patcher_close(&patcher);
    if (coverage_none())
        log_warn("no release of memory is seen in this program (%s): caches "
                 "must not keep registrations in it. Needed are glibc, linked "
                 "dynamically, and the right to write /proc/self/mem or to "
                 "make memory executable",
                 coverage_gap()->detail);
}
