/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Others patch too, after us. Nothing is ever put back over their bytes: they
 * may be a jump to code that still runs, or the only copy of what they keep.
 */
#include "hooks/patched.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "shim/sys.h"

#pragma weak _dl_find_object /* in glibc since 2.35 */

#define HEAD 18 /* bytes of a function that a known jump lies in */
#define NOTES 16
#define OVERWRITTEN "overwritten since by a patch"
#define BYPASSED "its site may be bypassed by a patch at its entry"

static struct patched {
    const char *path, *where;
    const uint8_t *site, *entry;
    uint8_t bytes[ARCH_WINDOW];
    uint8_t head[HEAD];
} patched[ARCH_SLOTS];
static unsigned added;
static unsigned sealed; /* how many of them may be looked at */

void patched_add(const char *path, const char *where, const uint8_t *site,
                 const uint8_t bytes[ARCH_WINDOW], const uint8_t *entry)
{
    struct patched *p = &patched[added];

    if (added == ARCH_SLOTS)
        return;
    *p = (struct patched){path, where, site, entry, {0}, {0}};
    memcpy(p->bytes, bytes, ARCH_WINDOW);
    added++;
}

/* Not earlier: a site of ours may lie in what is looked at. */
void patched_seal(void)
{
    for (unsigned i = sealed; i < added; i++)
        if (patched[i].entry)
            memcpy(patched[i].head, patched[i].entry, HEAD);
    /* R91: with A91, the entries are written */
    __atomic_store_n(&sealed, added, __ATOMIC_RELEASE);
}

bool patched_is_site(const uint8_t *site)
{
    /* acquire A91: pairs with R91 in patched_seal() */
    unsigned n = __atomic_load_n(&sealed, __ATOMIC_ACQUIRE);

    for (unsigned i = 0; i < n; i++)
        if (patched[i].site == site)
            return true;
    return false;
}

/* A sentence about somebody's code. Written once, kept for ever: callers of
 * lapse_coverage() hold on to it. */
static struct note {
    unsigned state; /* 0 free, 1 being written, 2 ready */
    uintptr_t target;
    const char *what;
    char text[160];
} notes[NOTES];

static void append(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);
    size_t n = strnlen(more, size - 1 - used);

    memcpy(text + used, more, n);
    text[used + n] = 0;
}

/* Many jump to a page near by first, and from there to their library. */
static uintptr_t follow(uintptr_t target)
{
    uint8_t code[HEAD];
    struct iovec local = {code, sizeof(code)};
    struct iovec remote = {(void *)target, sizeof(code)};
    uintptr_t further = 0;

    if (sys(SYS_process_vm_readv, sys(SYS_getpid), &local, 1, &remote, 1, 0) ==
            (long)sizeof(code) &&
        code[0] != 0xe9) /* relative to where it is, not to the copy */
        arch_foreign(code, sizeof(code), &further);
    return further ? further : target;
}

static const char *owner(uintptr_t target)
{
    struct dl_find_object found;

    /* takes no lock, other than dladdr() */
    if (target && _dl_find_object &&
        _dl_find_object((void *)target, &found) == 0 &&
        found.dlfo_link_map->l_name[0])
        return found.dlfo_link_map->l_name;
    return NULL;
}

static void write_note(struct note *note, uintptr_t target, const char *what)
{
    const char *name = owner(target);

    note->target = target;
    note->what = what;
    append(note->text, sizeof(note->text), what);
    append(note->text, sizeof(note->text), " of ");
    append(note->text, sizeof(note->text), name ? name : "unknown origin");
}

static const char *note_of(uintptr_t target, const char *what)
{
    target = follow(target);
    for (struct note *n = notes; n < notes + NOTES; n++) {
        unsigned state = 0;

        /* acquire A92: with R92, it is written */
        if (__atomic_compare_exchange_n(&n->state, &state, 1, false,
                                        __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
            write_note(n, target, what);
            /* release R92: with A92 */
            __atomic_store_n(&n->state, 2, __ATOMIC_RELEASE);
            return n->text;
        }
        if (state == 2 && n->target == target && n->what == what)
            return n->text;
    }
    return what;
}

bool patched_now(const char *path, const char *where, uint32_t *mechanism,
                 const char **detail)
{
    /* acquire A91: pairs with R91 in patched_seal() */
    unsigned n = __atomic_load_n(&sealed, __ATOMIC_ACQUIRE);
    bool changed = false;
    uintptr_t target, unused;

    for (const struct patched *p = patched; p < patched + n; p++) {
        if (strcmp(p->path, path) || strcmp(p->where, where))
            continue;
        if (memcmp(p->site, p->bytes, ARCH_WINDOW)) {
            target = 0;
            if (!p->entry || !arch_foreign(p->entry, HEAD, &target))
                arch_foreign(p->site, HEAD, &target);
            *mechanism = LAPSE_UNCOVERED;
            *detail = note_of(target, OVERWRITTEN);
            return true;
        }
        if (p->entry && memcmp(p->entry, p->head, HEAD)) {
            if (!arch_foreign(p->entry, HEAD, &target) &&
                arch_foreign(p->head, HEAD, &unused))
                continue; /* who was there before us has gone */
            *detail = note_of(target, BYPASSED);
            changed = true;
        }
    }
    return changed;
}
