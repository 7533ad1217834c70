/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * This library twice in one process, from two files (LD_PRELOAD with two
 * paths). Whoever calls lapse_subscribe() gets the first one's, so that one
 * must be the one that patches; the other does nothing, and says so once.
 */
#ifndef LAPSE_COPY_H
#define LAPSE_COPY_H

#include <stdbool.h>

/* Is another copy the one that programs find? If so, this one is made to refuse
 * subscribers, its table says why, and nothing else is to be done. */
bool copy_stands_back(void);

#endif
