/* SPDX-License-Identifier: BSD-3-Clause */
/* The rows of check_loader.c. */
#ifndef CHECK_LOADER_H
#define CHECK_LOADER_H

#include "check.h"

bool dlclose_setup(struct scene *s);
bool dlclose_release(struct scene *s);
void dlclose_give_back(struct scene *s);
bool deepbind_setup(struct scene *s);
bool dlmopen_setup(struct scene *s);
bool plugin_release(struct scene *s);

#endif
