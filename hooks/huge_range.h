/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lengths that the kernel rounds up further than to a page: mmap, mremap and
 * shmat of hugetlb memory work on whole huge pages, whatever length they are
 * given. (munmap refuses such a length, madvise rounds it down.)
 */
#ifndef LAPSE_HUGE_RANGE_H
#define LAPSE_HUGE_RANGE_H

#include <stdint.h>

enum huge_of {
    HUGE_NEVER,  /* it is known to be no hugetlb memory */
    HUGE_IS,     /* it is known to be */
    HUGE_MAPPED, /* if what is mapped at the address `what` is */
    HUGE_FILE,   /* if the file of the descriptor `what` is */
};

/*
 * Where what is asked to go from start to end may end indeed; end itself, or
 * more. Asks the kernel only if somebody watches what is in between: if nobody
 * does, all of it is to be announced, for who watches it a moment later.
 */
uintptr_t huge_end(uintptr_t start, uintptr_t end, enum huge_of of, long what);

#endif
