/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LAPSE_FORK_H
#define LAPSE_FORK_H

/* Register what fork needs. Once, from the constructor. */
void fork_start(void);

#endif
