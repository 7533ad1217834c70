/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which module is, or was, where in memory: the segment map of the trace
 * (shim/trace_file.h), for who looks up an address of a record later.
 */
#ifndef LAPSE_SEGMENTS_H
#define LAPSE_SEGMENTS_H

#include <stdbool.h>

/* The modules that are loaded now. told: segments_changed() will be called.
 * Takes the loader's lock: from the constructor only. */
void segments_start(bool told);
/* The loader says that modules come or go (at_rest: came, went). It holds its
 * lock: nothing is allocated, and nothing asked of it. */
void segments_changed(bool at_rest);
/* The end of the process, with the loader's lock free. */
void segments_stop(void);

#endif
