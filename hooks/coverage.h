/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The coverage table: for each release path, whether it is seen in this
 * process, and by what (G7). lapse_coverage() gives it away.
 */
#ifndef LAPSE_COVERAGE_H
#define LAPSE_COVERAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/lapse.h"

#define COVERAGE_LIBC "libc.so.6"
#define COVERAGE_LOADER "ld-linux-x86-64.so.2"

#define COVERAGE_SECOND "a second libc.so.6"

/*
 * What became of a path. where is one of those above; the strings must live
 * for ever. Only one thread sets a row: the constructor's, the one that holds
 * the loader's lock, the backstop's its two; anybody may read meanwhile.
 */
void coverage_set(const char *path, const char *where,
                  enum lapse_mechanism mechanism, const char *detail);

/* This library does nothing here: no row is covered, and this is why. */
void coverage_refuse(const char *why);

/* A row as it was last set, or NULL behind the last one. */
const struct lapse_coverage *coverage_row(size_t i);

/* If its sites are not as we left them, say so in this copy of the row. */
bool coverage_changed(struct lapse_coverage *row);

/* One row more, of a path without sites; there is room for a few. As above. */
void coverage_add(const char *path, const char *where,
                  enum lapse_mechanism mechanism, const char *detail);

/* The first row of a site that is not covered, or NULL if there is none. */
const struct lapse_coverage *coverage_gap(void);

/* Is every site covered? What has no site (Go, io_uring) does not count. */
bool coverage_complete(void);

/* Is not one site covered? */
bool coverage_none(void);

#endif
