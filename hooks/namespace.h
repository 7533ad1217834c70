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
/* Will changed modules be told of, by segments_changed()? */
bool namespaces_told(void);

/* Each object of each namespace that is listed. The loader's lock is held. */
typedef void namespace_take(const struct link_map *map, void *arg);
void namespaces_each(namespace_take *take, void *arg);

#endif
