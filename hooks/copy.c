/* SPDX-License-Identifier: BSD-3-Clause */
#include "hooks/copy.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "hooks/coverage.h"
#include "hooks/module.h"
#include "shim/log.h"
#include "shim/subscriber.h"

#pragma weak dladdr1 /* another C library has none: hooks/start.c */

#define SONAME "liblapse.so.0"

/* Where the module begins that has this address, or NULL. */
static const struct link_map *map_of(const void *at, const char **path)
{
    struct link_map *map = NULL;
    Dl_info info;

    if (!dladdr1 || !dladdr1(at, &info, (void **)&map, RTLD_DL_LINKMAP))
        return NULL;
    *path = info.dli_fname;
    return map;
}

bool copy_stands_back(void)
{
    /* Through the global offset table, so it is what programs find. */
    const struct link_map *found, *self;
    const char *path = NULL, *own = NULL;
    struct module other;

    found = map_of((const void *)(uintptr_t)lapse_subscribe, &path);
    self = map_of(&lapse_subscribers, &own);
    /* A wrapper of the same name is no copy of ours. */
    if (!found || !self || found == self ||
        !module_of_map(found, SONAME, &other))
        return false;
    subscriber_second_copy = true;
    coverage_refuse("another copy of this library, found first, does it");
    log_warn("%s: a second copy of this library, which does nothing; %s is "
             "the one in use",
             own, path);
    return true;
}
