/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More than one instruction may lie under the five bytes of a jump, so that a
 * thread could stand between two of them: such a function is patched only
 * while there is no other thread. Nothing may jump to behind its first byte
 * either; its own code is decoded to be sure, and all other text, where the
 * compiler puts what a function does rarely, is searched for long jumps.
 */
#include "hooks/relocate.h"

#include <string.h>

static bool inside(const struct relocation *r, uintptr_t target)
{
    uintptr_t start = (uintptr_t)r->code + r->moved.skip;

    return target > start && target < start + r->moved.taken;
}

static const char *check_code(const struct relocation *r)
{
    struct arch_insn insn;

    for (size_t at = 0; at < r->size; at += insn.size) {
        if (!arch_decode(r->code + at, r->size - at, &insn))
            return "its code cannot be decoded";
        if (insn.target && inside(r, insn.target))
            return "it jumps into its own first instructions";
    }
    return NULL;
}

struct batch {
    struct relocation *all;
    size_t n;
};

static void check_target(uintptr_t target, void *arg)
{
    const struct batch *b = arg;

    for (size_t i = 0; i < b->n; i++)
        if (!b->all[i].why && inside(&b->all[i], target))
            b->all[i].why = "other code jumps into its first instructions";
}

static void prepare(const struct patcher *patcher, struct relocation *r,
                    uint8_t *place)
{
    uintptr_t target;
    uint8_t jump[ARCH_WINDOW];

    if (arch_foreign(r->code, r->size, &target)) {
        r->why = "overwritten by a patch, or it is but a jump";
        return;
    }
    arch_detour(place, &r->detour);
    *r->real = (uintptr_t)place + ARCH_DETOUR_MOVED;
    r->why = arch_move(r->code, r->size, place + ARCH_DETOUR_MOVED, *r->real,
                       &r->moved);
    if (!r->why &&
        !arch_jump(jump, (uintptr_t)r->code + r->moved.skip, (uintptr_t)place))
        r->why = "it is out of reach of the page near by";
    if (!r->why && !r->moved.one && !patcher->alone)
        r->why = "other threads run already";
    if (!r->why)
        r->why = check_code(r);
}

static void patch(const struct patcher *patcher, const struct module *module,
                  struct relocation *r)
{
    uint8_t *at = (uint8_t *)r->code + r->moved.skip;
    uint8_t old[ARCH_WINDOW], fresh[ARCH_WINDOW];

    memcpy(old, at, ARCH_WINDOW);
    arch_jump(fresh, (uintptr_t)at, *r->real - ARCH_DETOUR_MOVED);
    r->why = patch_window(patcher, module, at, old, fresh);
}

void relocate(const struct patcher *patcher, const struct module *module,
              struct relocation *all, size_t n)
{
    uint8_t *page = near_map((uintptr_t)module->text);
    struct batch batch = {all, n};

    for (size_t i = 0; page && i < n; i++)
        prepare(patcher, &all[i], page + i * ARCH_DETOUR);
    if (!page || !near_seal(page)) {
        for (size_t i = 0; i < n; i++)
            all[i].why = "no page near by can be made for its hook";
        return;
    }
    arch_find_jumps(module->text, module->text_size, check_target, &batch);
    for (size_t i = 0; i < n; i++)
        if (!all[i].why)
            patch(patcher, module, &all[i]);
}
