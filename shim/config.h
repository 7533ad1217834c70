/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The environment, read once, when the library is loaded. Ignored in setuid
 * programs. A value that makes no sense, and a LAPSE_ variable that is not
 * known, get one warning each that names them.
 *
 *   LAPSE_RECORDS=N   records preallocated per subscriber (64 to 1048576,
 *                     default 4096)
 *   LAPSE_FREE=1      see free() and its like, byte-exact (default 0)
 *   LAPSE_BACKSTOP=uffd  let the kernel tell of what no site sees, in watched
 *                     ranges (default none)
 *   LAPSE_WATCHDOG=N  report a callback, poll or sync that takes N seconds
 *                     (up to 1000000; default 0: none)
 *   LAPSE_REPORT=DIR  keep counters in files in DIR; set by `lapse run`
 *   LAPSE_TRACE=DIR   keep a trace in a file in DIR: see trace.h
 *   LAPSE_STACKS=KB   with the stack of each release, up to so much of it (1
 *                     to 64; default none)
 *   LAPSE_TRACE_RING=KB  of each of the trace's rings (64 to 65536, rounded up
 *                     to a power of two; default 256, with stacks 4096)
 */
#ifndef LAPSE_CONFIG_H
#define LAPSE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

struct lapse_config {
    uint32_t records;
    const char *report; /* NULL = no */
    const char *trace;  /* NULL = no */
    uint32_t stacks;     /* KB, 0 = no */
    uint32_t trace_ring; /* KB, 0 = default */
    bool free;          /* hook free and its like */
    bool backstop;      /* userfaultfd on watched ranges */
    uint32_t watchdog;  /* seconds; 0 = no */
};
extern struct lapse_config lapse_config;

void config_read(char **environment);

#endif
