/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of report.h that runs in hooks, in reporting mode only. */
#include "report.h"

#define PROBES 16

void report_caller(uint64_t pc, unsigned path, uint64_t bytes)
{
    uint64_t hash = (pc * 0x9e3779b97f4a7c15u) >> 32;

    for (unsigned i = 0; i < PROBES; i++) {
        struct report_caller *c =
            &lapse_report->callers[(hash + i) & (REPORT_CALLERS - 1)];
        uint64_t seen = __atomic_load_n(&c->pc, __ATOMIC_RELAXED);

        if (!seen && __atomic_compare_exchange_n(&c->pc, &seen, pc, 0,
                                                 __ATOMIC_RELAXED,
                                                 __ATOMIC_RELAXED)) {
            __atomic_store_n(&c->path, path, __ATOMIC_RELAXED);
            seen = pc;
        }
        if (seen != pc)
            continue;
        /* relaxed: sums, read when the process is over */
        __atomic_fetch_add(&c->count, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&c->bytes, bytes, __ATOMIC_RELAXED);
        return;
    }
    __atomic_fetch_add(&lapse_report->callers_lost, 1, __ATOMIC_RELAXED);
}

void report_unloaded(uint64_t start, uint64_t end)
{
    for (unsigned i = 0; i < REPORT_CALLERS; i++) {
        struct report_caller *c = &lapse_report->callers[i];
        /* relaxed: the code there runs no more, and its sums are as above */
        uint64_t pc = __atomic_load_n(&c->pc, __ATOMIC_RELAXED);

        if (!pc || pc - 1 < start || pc - 1 >= end)
            continue;
        __atomic_fetch_add(&c->gone_count,
                           __atomic_exchange_n(&c->count, 0, __ATOMIC_RELAXED),
                           __ATOMIC_RELAXED);
        __atomic_fetch_add(&c->gone_bytes,
                           __atomic_exchange_n(&c->bytes, 0, __ATOMIC_RELAXED),
                           __ATOMIC_RELAXED);
    }
}
