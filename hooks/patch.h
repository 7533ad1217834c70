/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replacing one instruction of a program that may be running.
 */
#ifndef LAPSE_PATCH_H
#define LAPSE_PATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "hooks/arch.h"
#include "hooks/module.h"

struct patcher {
    int memory; /* /proc/self/mem, or -errno */
    bool alone; /* no other thread can be at a site meanwhile */
};

void patcher_open(struct patcher *patcher);
void patcher_close(struct patcher *patcher);

/*
 * Write the bytes of one instruction over those of another one, old, in the
 * text of module. Threads may run it meanwhile: each executes one or the
 * other, whole. Text is at no time writable and executable at once.
 * Returns NULL, or why nothing was changed.
 */
const char *patch_window(const struct patcher *patcher,
                         const struct module *module, uint8_t *at,
                         const uint8_t old[ARCH_WINDOW],
                         const uint8_t fresh[ARCH_WINDOW]);

/*
 * Where a site must jump to in order to come to the entry of its slot: the
 * entry, or when that is out of reach a stub near the site. 0: nowhere.
 */
uintptr_t near_entry(uintptr_t site, int slot);
uintptr_t near_stub(uintptr_t site, int slot);

/* The same for other code of ours, which there is one of in all. */
uintptr_t near_code(uintptr_t site, uintptr_t to);

/*
 * A page that a jump at site reaches, to be written; then sealed, which makes
 * it executable and no longer writable. NULL, and false: it cannot be made;
 * the page is gone.
 */
#define NEAR_PAGE 4096
uint8_t *near_map(uintptr_t site);
bool near_seal(uint8_t *page);

#endif
