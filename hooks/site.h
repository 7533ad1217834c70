/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sites: where release paths enter the kernel, in libc and in ld.so, and the
 * patching of them. See DESIGN in README.md, "How releases are seen".
 */
#ifndef LAPSE_SITE_H
#define LAPSE_SITE_H

#include <stdbool.h>

#include "hooks/module.h"
#include "hooks/patch.h"

/*
 * Find and patch every site. Called once, from the constructor; the process
 * may have other threads already. Never fails: a site that could not be
 * patched is left as it was and its row of the coverage table says why.
 */
void sites_patch(void);

/*
 * Are there sites of this path in libc that were not looked for at the start,
 * because they lie elsewhere? The first call looks through all of libc's text.
 * AS-safe.
 */
bool sites_left(const char *path);

/* The slots that a libc takes. */
#define SITE_SLOTS 32
struct site_slots {
    int slot[SITE_SLOTS];
    unsigned used;
};

/*
 * The same for one more libc; no row of the table changes. Returns NULL, or
 * why it is not covered in full. Its slots are to be given back when it is
 * gone.
 */
const char *sites_patch_libc(const struct module *libc,
                             const struct patcher *patcher,
                             struct site_slots *slots);
void site_slots_give(struct site_slots *slots);

#endif
