/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COMPARE_H
#define COMPARE_H

/* Runs this program with "child", without and with LD_PRELOAD=lib; prints the
 * table. 1 when a target was missed. */
int compare(const char *lib);

#endif
