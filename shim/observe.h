/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is anything kept of a release besides the counters? The one question that
 * hooks ask; what it is for comes after. Set by the constructor, cleared where
 * a forked child can make no file; plain, as both are alone.
 */
#ifndef LAPSE_OBSERVE_H
#define LAPSE_OBSERVE_H

#include <stdint.h>

enum {
    OBSERVE_REPORT = 1, /* LAPSE_REPORT: callers, and the inside_* columns */
    OBSERVE_TRACE = 2   /* LAPSE_TRACE: a record of each */
};
extern uint32_t lapse_observing __attribute__((visibility("hidden")));

static inline uint32_t observing(uint32_t what)
{
    return lapse_observing & what;
}

#endif
