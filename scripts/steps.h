/* SPDX-License-Identifier: BSD-3-Clause */
/* How much there was over time, of things that come and go. */
#ifndef STEPS_H
#define STEPS_H

#include <stddef.h>
#include <stdint.h>

#define STEPS_NEVER UINT64_MAX /* `to` of what does not go */

struct step {
    uint64_t ns;
    uint64_t by; /* less: wraps around, as nonsense may do, too */
};

struct steps {
    struct step *step;
    size_t n, room;
};

void steps_add(struct steps *steps, uint64_t from, uint64_t to, uint64_t by);
/* By time; of one moment, what goes before what comes. */
void steps_sort(struct steps *steps);

#endif
