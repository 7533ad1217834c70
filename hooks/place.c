/* SPDX-License-Identifier: BSD-3-Clause */
#include "hooks/place.h"

#include <dlfcn.h>
#include <string.h>

#include "hooks/coverage.h"
#include "hooks/patched.h"

#define BEGIN_ALIGN 16      /* of functions */
#define BEGIN_DISTANCE 512  /* from a function's begin to its site */
#define FOREIGN_RESYNC 16   /* bytes of broken code behind a foreign patch */
#define FOREIGN_TEXTS 8

struct place place_of(const struct hook *hook)
{
    return (struct place){.path = hook ? hook->name : "syscall",
                          .name = hook ? hook->name : "syscall",
                          .kind = hook ? ARCH_PLAIN : ARCH_SYSCALL,
                          .nr = hook ? hook->nr : 0,
                          .body = hook ? hook->body : NULL,
                          .mechanism = LAPSE_SITE,
                          .detail = ""};
}

void place_refuse(struct place *place, const char *why)
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

const char *place_missing(const struct place *place)
{
    uint8_t bytes[ARCH_SITE];
    uintptr_t target = 0;

    arch_site_bytes(bytes, place->kind, place->nr);
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

/* Its last byte is rare. */
const uint8_t *next_enter(const uint8_t *from, const uint8_t *end)
{
    uint8_t site[ARCH_SITE];
    const uint8_t *enter = site + ARCH_WINDOW;

    arch_site_bytes(site, ARCH_PLAIN, 0);
    for (from += ARCH_ENTER - 1; from < end; from++) {
        from = memchr(from, enter[ARCH_ENTER - 1], (size_t)(end - from));
        if (!from)
            return NULL;
        if (!memcmp(from - (ARCH_ENTER - 1), enter, ARCH_ENTER))
            return from - (ARCH_ENTER - 1);
    }
    return NULL;
}

/* The function's bounds are known, its begin may be patched by somebody. */
bool place_check_function(struct place *place, struct window_memo *memo)
{
    uintptr_t target = 0;
    size_t skip = arch_foreign(place->code, place->size, &target);
    size_t limit = skip ? skip + FOREIGN_RESYNC : 1;
    const char *why = NULL;

    for (size_t from = skip; from < limit && from < place->size; from++) {
        why = window_check_next(memo, place->code + from, place->size - from,
                                place->site);
        if (!why)
            break;
    }
    if (why)
        place_refuse(place, why);
    else if (skip) {
        place->mechanism = LAPSE_CHAINED;
        place->detail = foreign_text("behind a patch", target);
    }
    return !why;
}

/* They are not: look for where it begins, backward from its site. */
bool place_check_text(struct place *place)
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
    place_refuse(place, why);
    return false;
}

static void note_patched(struct target *target, const struct place *place,
                         int slot, const uint8_t fresh[ARCH_WINDOW])
{
    if (target->where)
        patched_add(place->path, target->where, place->site, fresh,
                    place->entry);
    else if (target->slots->used < SITE_SLOTS)
        target->slots->slot[target->slots->used++] = slot;
}

void place_patch(struct place *place, struct target *target)
{
    uint8_t old[ARCH_SITE], fresh[ARCH_WINDOW];
    uintptr_t site = (uintptr_t)place->site;
    int slot = arch_slot_take(site, place->kind, place->body);
    uintptr_t entry = slot < 0 ? 0 : near_entry(site, slot);
    const char *why;

    if (slot < 0) {
        place_refuse(place, "this library has entries for fewer sites");
        return;
    }
    arch_site_bytes(old, place->kind, place->nr);
    arch_jump(fresh, site, entry);
    why = entry ? patch_window(target->patcher, target->module,
                               (uint8_t *)place->site, old, fresh)
                : "no page near by can be made for the way to its hook";
    if (!why) {
        note_patched(target, place, slot, fresh);
        return;
    }
    arch_slot_give(slot);
    place_refuse(place, why);
}

void place_finish(const struct place *place, struct target *target)
{
    if (target->where)
        coverage_set(place->path, target->where, place->mechanism,
                     place->detail);
    else if (place->mechanism == LAPSE_UNCOVERED && !target->why)
        target->why = place->detail;
}
