/* SPDX-License-Identifier: BSD-3-Clause */
#include "hold.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>

#pragma weak dladdr1 /* another C library has none: hooks/start.c */

void *module_hold(const void *code)
{
    struct link_map *map = NULL;
    Dl_info info;
    void *handle;

    if (!code || !dladdr1(code, &info, (void **)&map, RTLD_DL_LINKMAP))
        return NULL;
    if (!map || !map->l_name[0]) /* the program itself */
        return NULL;
    handle = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        dlerror(); /* ours, not the program's */
    return handle;
}
