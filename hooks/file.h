/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hooks of calls that take pages out of a file: what is mapped of it here
 * goes with them, whoever mapped it, by whatever descriptor.
 */
#ifndef LAPSE_FILE_H
#define LAPSE_FILE_H

#include "hooks/hook.h"

hook_body hook_fallocate, hook_ftruncate, hook_truncate;
hook_body hook_remove; /* madvise with MADV_REMOVE, of a range that can be */
hook_body hook_open, hook_openat, hook_creat, hook_openat2;

#endif
