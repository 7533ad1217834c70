/* SPDX-License-Identifier: BSD-3-Clause */
/* What was patched, and whether somebody has changed it since. */
#ifndef LAPSE_PATCHED_H
#define LAPSE_PATCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "hooks/arch.h"
#include "shim/lapse.h"

/*
 * A site now holds these bytes. entry is where its function begins, or NULL;
 * path and where name its row of the coverage table. The text must stay for
 * ever. From the constructor only, and sealed after the last one, when
 * patched_now() begins to look.
 */
void patched_add(const char *path, const char *where, const uint8_t *site,
                 const uint8_t bytes[ARCH_WINDOW], const uint8_t *entry);
void patched_seal(void);

/* Was a site of ours here? */
bool patched_is_site(const uint8_t *site);

/*
 * Is this row's text as we left it? If not, says in what way: mechanism
 * becomes LAPSE_UNCOVERED if a site is ours no more; if only the function's
 * begin leads elsewhere, detail alone changes. AS-safe.
 */
bool patched_now(const char *path, const char *where, uint32_t *mechanism,
                 const char **detail);

#endif
