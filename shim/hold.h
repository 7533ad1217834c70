/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LAPSE_HOLD_H
#define LAPSE_HOLD_H

/*
 * Hold the module that this code is of loaded: a handle for dlclose(); NULL
 * when it cannot go anyway. Takes the loader's lock.
 */
void *module_hold(const void *code);

#endif
