/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hooks for the tests of patching: they count, remember, and make the system
 * call. Link instead of hooks/hook.c.
 */
#ifndef LAPSE_FAKE_HOOKS_H
#define LAPSE_FAKE_HOOKS_H

#include "hooks/hook.h"

/*
 * Calls seen of a row of lapse_hooks[]. A function, for compilers know that malloc and free
 * change no variable of ours.
 */
unsigned long fake_count(int index);

/* What fake_body() was called with last; it returns fake_result. */
extern long fake_args[6];
extern const uintptr_t *fake_stack;
extern long fake_result;
hook_body fake_body;

#endif
