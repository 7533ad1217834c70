/* SPDX-License-Identifier: BSD-3-Clause */
#include "start.h"

#include "config.h"
#include "fork.h"
#include "log.h"
#include "release.h"
#include "report.h"
#include "trace.h"
#include "watchdog.h"

void shim_start(char **environment)
{
    log_start();
    release_start();
    config_read(environment);
    if (lapse_config.report)
        report_start(lapse_config.report);
    trace_start();
    if (lapse_config.watchdog)
        watchdog_find_command();
    fork_start();
}
