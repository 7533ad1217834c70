/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Other namespaces: dlmopen() and LD_AUDIT bring a libc of their own, whose
 * sites are patched before its first code runs.
 */
#ifndef LAPSE_NAMESPACE_H
#define LAPSE_NAMESPACE_H

#include "hooks/module.h"
#include "hooks/patch.h"

/* Patch those that are there, and be called when one comes. From the
 * constructor only. loader NULL: there is no ld.so. */
void namespaces_start(const struct module *loader,
                      const struct patcher *patcher);

#endif
