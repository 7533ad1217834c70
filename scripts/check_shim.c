/* SPDX-License-Identifier: BSD-3-Clause */
/* Looked up, not linked: the same program runs without the library. */
#include "check.h"

bool shim_find(struct shim *shim)
{
    shim->subscribe = check_symbol("lapse_subscribe");
    shim->watch = check_symbol("lapse_watch");
    shim->poll = check_symbol("lapse_poll");
    shim->coverage = check_symbol("lapse_coverage");
    shim->stats = check_symbol("lapse_stats");
    shim->path_name = check_symbol("lapse_path_name");
    return shim->subscribe && shim->watch && shim->poll && shim->coverage &&
           shim->stats && shim->path_name;
}
