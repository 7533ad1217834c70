/* SPDX-License-Identifier: BSD-3-Clause */
/* How a phase ended: torture_phase.c watches, torture_judge.c judges. */
#ifndef LAPSE_TORTURE_PHASE_H
#define LAPSE_TORTURE_PHASE_H

#include "torture.h"

enum phase_end {
    PHASE_ENDED, /* the child is gone: of itself, or see death */
    PHASE_HUNG,
    PHASE_NO_HANG, /* sync: it should have */
    PHASE_NOT_STARTED,
    PHASE_NOT_STOPPED
};

struct phase_result {
    enum phase_end end;
    double ran;           /* seconds that the threads ran */
    double longest_still; /* that any thread, or telling, stood still */
    unsigned still;       /* hung: threads that stand still */
    double worked;        /* hung: seconds until the holders stood still */
    char death[80];       /* why the child ended, if not of itself */
};

/* Print what was counted and seen, backtraces of a hung child too (it is
   still there, unless PHASE_ENDED); true when all went as demanded. */
bool phase_judge(const struct torture_options *options,
                 enum torture_mode mode, const struct torture_board *board,
                 pid_t pid, const struct phase_result *result);

#endif
