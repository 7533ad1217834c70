/* SPDX-License-Identifier: BSD-3-Clause */
/* madvise: which advice releases, and that of a whole vector of ranges. */
#ifndef LAPSE_ADVICE_H
#define LAPSE_ADVICE_H

#include <stdbool.h>
#include <sys/mman.h>

#include "hooks/hook.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#define ADVICE_GUARD_INSTALL 102 /* newer than Debian 12's headers */
#define ADVICE_SOFT_OFFLINE 101  /* missing in them */

/* PAGEOUT and COLD leave pinned pages where they are; FREE may take the page
 * any time later, so it counts from the call on. */
static inline bool advice_releases(long advice)
{
    switch (advice) {
    case MADV_DONTNEED:
    case MADV_FREE:
    case MADV_REMOVE:
    case MADV_DONTNEED_LOCKED:
    case MADV_HWPOISON:
    case ADVICE_SOFT_OFFLINE:
    case ADVICE_GUARD_INSTALL:
        return true;
    }
    return false;
}

hook_body hook_process_madvise;

#endif
