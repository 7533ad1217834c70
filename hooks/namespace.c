/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ld.so calls an empty function, named in struct r_debug, for debuggers to
 * have their breakpoint on: among others when all objects of a dlopen() or
 * dlmopen() are mapped, none is relocated yet, and after a dlclose(). It is
 * patched to come here, on the thread that holds the loader's lock. A debugger
 * that has its breakpoint there first keeps it, and the coverage table says
 * so; one that comes later puts it on top of ours, as on any code.
 */
#include "hooks/namespace.h"

#include <errno.h>
#include <gnu/libc-version.h>
#include <string.h>

#include "hooks/coverage.h"
#include "hooks/patched.h"
#include "hooks/segments.h"
#include "hooks/site.h"

#pragma weak gnu_get_libc_version /* start.c looks whether it is there */

#define NAMESPACES 16 /* as many as glibc has */

/* As glibc has had it since 2.35, where it is linked when r_version is 2. */
struct namespace {
    struct r_debug debug;
    struct namespace *next;
};

static struct namespace *first; /* ours */
static bool told;

/* The libc of another namespace, of which there is one each. */
static struct second {
    const struct link_map *map; /* NULL: none */
    ElfW(Addr) base;
    bool seen; /* in this round */
    const char *why; /* it is not covered in full; NULL: it is */
    struct site_slots slots;
} seconds[NAMESPACES];

static struct second *second_of(const struct link_map *map)
{
    struct second *none = NULL;

    for (struct second *s = seconds; s < seconds + NAMESPACES; s++) {
        if (s->map == map && s->base == map->l_addr)
            return s;
        if (!s->map)
            none = s;
    }
    return none;
}

/* No thread can be in a libc that is not relocated yet. */
static void meet(const struct link_map *map, const struct module *libc,
                 const struct patcher *patcher)
{
    struct second *s = second_of(map);
    struct patcher own;

    if (!s)
        return;
    s->seen = true;
    if (s->map)
        return;
    s->map = map;
    s->base = map->l_addr;
    if (!patcher) {
        patcher_open(&own);
        own.alone = true;
    }
    s->why = sites_patch_libc(libc, patcher ? patcher : &own, &s->slots);
    if (!patcher)
        patcher_close(&own);
}

static void set_row(void)
{
    const char *why = NULL;
    bool any = false;

    for (struct second *s = seconds; s < seconds + NAMESPACES; s++) {
        any |= s->map != NULL;
        if (s->map && !why)
            why = s->why;
    }
    coverage_set("dlmopen", COVERAGE_SECOND,
                 why   ? LAPSE_UNCOVERED
                 : any ? LAPSE_SITE
                       : LAPSE_ABSENT,
                 why ? why : "");
}

/* All namespaces are at rest: a change of the one is told at its end. */
static bool consistent(void)
{
    for (struct namespace *n = first; n; n = n->next) {
        if (n->debug.r_state != RT_CONSISTENT)
            return false;
        if (n->debug.r_version < 2)
            break;
    }
    return true;
}

static void look_around(const struct patcher *patcher)
{
    struct module libc;

    /* nor is there a second one, or there was and its list is empty */
    if (first->debug.r_version < 2 || !consistent())
        return;
    for (struct second *s = seconds; s < seconds + NAMESPACES; s++)
        s->seen = false;
    for (struct namespace *n = first->next; n; n = n->next)
        for (struct link_map *map = n->debug.r_map; map; map = map->l_next)
            if (module_of_map(map, COVERAGE_LIBC, &libc))
                meet(map, &libc, patcher);
    for (struct second *s = seconds; s < seconds + NAMESPACES; s++) {
        if (!s->map || s->seen)
            continue;
        site_slots_give(&s->slots);
        s->map = NULL;
    }
    set_row();
}

/* In place of the empty function. */
static void changed(void)
{
    int error = errno;

    look_around(NULL);
    segments_changed(consistent());
    errno = error;
}

void namespaces_each(namespace_take *take, void *arg)
{
    for (struct namespace *n = first; n; n = n->next) {
        for (struct link_map *map = n->debug.r_map; map; map = map->l_next)
            take(map, arg);
        if (n->debug.r_version < 2)
            break;
    }
}

static const char *watch_loader(const struct module *loader,
                                const struct patcher *patcher)
{
    uint8_t *at = (uint8_t *)first->debug.r_brk;
    uint8_t fresh[ARCH_WINDOW], old[ARCH_WINDOW];
    const char *why;
    uintptr_t to;

    if (!at || (at = arch_empty(at)) == NULL)
        return "what ld.so calls when a library comes is not as expected; "
               "a debugger may have its breakpoint there";
    to = near_code((uintptr_t)at, (uintptr_t)changed);
    if (!to)
        return "no page near ld.so can be made";
    memcpy(old, at, sizeof(old));
    arch_jump(fresh, (uintptr_t)at, to);
    why = patch_window(patcher, loader, at, old, fresh);
    if (!why)
        patched_add("dlmopen", COVERAGE_SECOND, at, fresh, NULL);
    return why;
}

bool namespaces_told(void)
{
    return told;
}

void namespaces_start(const struct module *loader,
                      const struct patcher *patcher)
{
    const char *why = "no ld.so is known that lists namespaces";

    first = loader ? module_variable(loader, "_r_debug") : NULL;
    if (first && strverscmp(gnu_get_libc_version(), "2.35") < 0) {
        why = "this glibc lists no other namespaces";
        first = NULL;
    }
    if (first)
        why = watch_loader(loader, patcher);
    if (first && !why) {
        set_row();
        look_around(patcher);
        told = true;
    } else
        coverage_set("dlmopen", COVERAGE_SECOND, LAPSE_UNCOVERED, why);
}
