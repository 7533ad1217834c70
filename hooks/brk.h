/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LAPSE_BRK_H
#define LAPSE_BRK_H

#include <stdatomic.h>
#include <stdint.h>

/* The break, as the last call at a site left it; set by the constructor. */
extern _Atomic uintptr_t hook_brk;

#endif
