/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Patching functions at their entry: the first instructions move to a page
 * near by, a jump to there takes their place.
 */
#ifndef LAPSE_RELOCATE_H
#define LAPSE_RELOCATE_H

#include <stdint.h>

#include "hooks/arch.h"
#include "hooks/module.h"
#include "hooks/patch.h"

#define RELOCATE_MOST (NEAR_PAGE / ARCH_DETOUR)

/* A function on its way to being patched. */
struct relocation {
    const uint8_t *code; /* all of it */
    size_t size;
    struct arch_detour detour;
    uintptr_t *real; /* gets, before the patch, what to call in its place */
    const char *why; /* NULL, or why it was left as it was */
    struct arch_moved moved;
};

/*
 * Patch n (up to RELOCATE_MOST) functions of module. Each is patched, or left
 * as it was and says why.
 */
void relocate(const struct patcher *patcher, const struct module *module,
              struct relocation *all, size_t n);

#endif
