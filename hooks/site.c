/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finding the sites. Most calls have one in libc, in the function of that
 * name, which everything inside libc calls too; syscall() has one for all.
 * Those that change files have several (site_file.c). ld.so has its own, and
 * no symbols.
 * What looks in any way unlike what we know is left as it is, and the
 * coverage table says so.
 */
#include "hooks/site.h"

#include <string.h>

#include "hooks/coverage.h"
#include "hooks/namespace.h"
#include "hooks/patched.h"
#include "hooks/place.h"
#include "shim/log.h"

#define LOADER_PATHS 3

/* Look through the code that the places have in common, once for all. */
static void find_sites(struct place *places, size_t n)
{
    const uint8_t *at = places->code + ARCH_WINDOW;
    const uint8_t *end = places->code + places->size;

    for (; (at = next_enter(at, end)); at += ARCH_ENTER)
        for (struct place *p = places; p < places + n; p++) {
            uint8_t bytes[ARCH_SITE];

            arch_site_bytes(bytes, p->kind, p->nr);
            if (memcmp(at - ARCH_WINDOW, bytes, ARCH_SITE))
                continue;
            p->site = at - ARCH_WINDOW;
            p->found++;
        }
}

static bool has_one_site(struct place *place)
{
    if (!place->found)
        place_refuse(place, place_missing(place));
    else if (place->found > 1)
        place_refuse(place, "it has more than one site");
    return place->found == 1;
}

static void cover_place(struct place place, struct target *target)
{
    struct window_memo memo = {.begin = NULL};

    place.code = module_function(target->module, place.name, &place.size);
    place.entry = place.code;
    if (place.code) {
        find_sites(&place, 1);
        if (has_one_site(&place) && place_check_function(&place, &memo))
            place_patch(&place, target);
    } else if (!strcmp(place.path, "process_madvise")) {
        /* Newer than the oldest libc we meet; the others always were there. */
        place.mechanism = LAPSE_ABSENT;
    } else
        place_refuse(&place, "libc defines no function of this name");
    place_finish(&place, target);
}

/* Makes the same call as madvise(), from a site of its own; whatever number is
 * not an advice of POSIX it hands on to the kernel. */
static struct place posix_madvise_place(void)
{
    struct place place = place_of(&lapse_hooks[LAPSE_PATH_MADVISE]);

    place.path = place.name = "posix_madvise";
    return place;
}

static void cover_libc(struct target *target)
{
    for (int i = 0; i < HOOK_FILES; i++)
        cover_place(place_of(&lapse_hooks[i]), target);
    cover_place(posix_madvise_place(), target);
    cover_place(place_of(NULL), target);
    cover_files(target);
}

static void cover_nothing(struct place place, struct target *target)
{
    place_refuse(&place, "no libc.so.6 is loaded: static, or not glibc");
    place_finish(&place, target);
}

static void cover_no_libc(struct target *target)
{
    for (int i = 0; i <= HOOK_FILES + FILE_ROWS; i++) {
        bool any = i == HOOK_FILES + FILE_ROWS;
        struct place place = place_of(any ? NULL : &lapse_hooks[i]);

        if (i == LAPSE_PATH_MADVISE)
            cover_nothing(posix_madvise_place(), target);
        cover_nothing(place, target);
    }
}

static void cover_loader(const struct patcher *patcher)
{
    static const enum lapse_path paths[LOADER_PATHS] = {
        LAPSE_PATH_MUNMAP, LAPSE_PATH_MMAP, LAPSE_PATH_BRK};
    struct module loader = {.text = NULL};
    struct target target = {&loader, patcher, COVERAGE_LOADER, NULL, NULL};
    bool found = module_find(COVERAGE_LOADER, &loader);
    struct place places[LOADER_PATHS];

    for (int i = 0; i < LOADER_PATHS; i++) {
        places[i] = place_of(&lapse_hooks[paths[i]]);
        places[i].code = loader.text;
        places[i].size = loader.text_size;
    }
    if (found)
        find_sites(places, LOADER_PATHS);
    for (struct place *p = places; p < places + LOADER_PATHS; p++) {
        if (!found)
            place_refuse(p, "no " COVERAGE_LOADER " is loaded");
        else if (has_one_site(p) && place_check_text(p))
            place_patch(p, &target);
        place_finish(p, &target);
    }
    namespaces_start(found ? &loader : NULL, patcher);
}

const char *sites_patch_libc(const struct module *libc,
                             const struct patcher *patcher,
                             struct site_slots *slots)
{
    struct target target = {libc, patcher, NULL, slots, NULL};

    cover_libc(&target);
    return target.why;
}

void site_slots_give(struct site_slots *slots)
{
    for (unsigned i = 0; i < slots->used; i++)
        arch_slot_give(slots->slot[i]);
    slots->used = 0;
}

void sites_patch(void)
{
    struct module libc;
    struct patcher patcher;
    struct target target = {&libc, &patcher, COVERAGE_LIBC, NULL, NULL};

    patcher_open(&patcher);
    if (module_find(COVERAGE_LIBC, &libc))
        cover_libc(&target);
    else
        cover_no_libc(&target);
    cover_loader(&patcher);
    patched_seal();
    patcher_close(&patcher);
    if (coverage_none())
        log_warn("no release of memory is seen in this program (%s): caches "
                 "must not keep registrations in it. Needed are glibc, linked "
                 "dynamically, and the right to write /proc/self/mem or to "
                 "make memory executable",
                 coverage_gap()->detail);
}
