/* SPDX-License-Identifier: BSD-3-Clause */
/* madvise: which advice releases, and that of a whole vector of ranges. */
#ifndef LAPSE_ADVICE_H
#define LAPSE_ADVICE_H

#include <stdbool.h>

#include "hooks/hook.h"

bool advice_releases(long advice);

hook_body hook_process_madvise;

#endif
