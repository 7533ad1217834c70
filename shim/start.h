/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LAPSE_START_H
#define LAPSE_START_H

/* What shim/ needs before the first hook may run: configuration, the place of
 * the counters, fork. From the constructor. */
void shim_start(char **environment);

#endif
