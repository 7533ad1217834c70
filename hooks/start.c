/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The constructor: before those of all other objects (-z initfirst), so that
 * what they release is seen. Nothing here may rely on another library's
 * constructor having run, libc's included.
 */
#include "shim/start.h"

#include <sys/syscall.h>

#include "hooks/brk.h"
#include "hooks/caller.h"
#include "hooks/coverage.h"
#include "hooks/site.h"
#include "shim/report.h"
#include "shim/sys.h"

static void note_gap(void)
{
    const struct lapse_coverage *gap = coverage_gap();

    if (gap) {
        report_warn("not every release is seen; the first path that is not:");
        report_warn(gap->path);
        report_warn(gap->detail);
    }
}

__attribute__((constructor)) static void start(int argc, char **argv,
                                               char **environment)
{
    (void)argc;
    (void)argv;
    shim_start(environment);
    caller_start();
    atomic_store_explicit(&hook_brk, (uintptr_t)sys(SYS_brk, 0),
                          memory_order_relaxed);
    report_modules();
    sites_patch();
    note_gap();
    report_started();
}

__attribute__((destructor)) static void stop(void)
{
    report_modules();
    report_refresh();
}
