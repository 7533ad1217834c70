/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One line on stderr, from anywhere: bounded stack buffer, one write(2), no
 * allocation, errno kept. Nothing is printed on a good day.
 */
#ifndef LAPSE_LOG_H
#define LAPSE_LOG_H

#include <stdbool.h>

/* Remember what stderr is: nothing is written to a file that took its number
 * later. From the constructor. */
void log_start(void);

/* Is descriptor 2 what it was then? */
bool log_is_open(void);

/*
 * Prints "lapse[PID]: " and the format's text, cut at 400 bytes. Understands
 * %s %d %u %x %p %lu %lx %zu %% only. AS-safe. The line is lost, and nothing
 * else happens, where stderr is closed, broken, full, or another file.
 */
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
