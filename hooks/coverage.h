/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The coverage table: for each release path, whether it is seen in this
 * process, and by what (G7). lapse_coverage() gives it away.
 */
#ifndef LAPSE_COVERAGE_H
#define LAPSE_COVERAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/lapse.h"

#define COVERAGE_LIBC "libc.so.6"
#define COVERAGE_LOADER "ld-linux-x86-64.so.2"

/*
 * What became of a path. where is one of the two above; the strings must live
 * for ever. Only the constructor's thread sets, and the backstop its two rows;
 * anybody may read meanwhile.
 */
void coverage_set(const char *path, const char *where,
                  enum lapse_mechanism mechanism, const char *detail);

/* The first row of a site that is not covered, or NULL if there is none. */
const struct lapse_coverage *coverage_gap(void);

/* Is every site covered? What has no site (Go, io_uring) does not count. */
bool coverage_complete(void);

/* Is not one site covered? */
bool coverage_none(void);

#endif
