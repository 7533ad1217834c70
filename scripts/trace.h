/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading the trace of a process (shim/trace_file.h), while it is written or
 * afterwards. The file may be cut, hostile, or of another version: nothing in
 * it is trusted.
 */
#ifndef SCRIPTS_TRACE_H
#define SCRIPTS_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/trace_file.h"

struct trace; /* one file, open */

/* NULL: *why says what is wrong with it, as the end of a sentence that begins
 * with its name ("is not a trace of lapse"). */
struct trace *trace_open(const char *path, const char **why);
void trace_close(struct trace *t);
const struct trace_header *trace_head(const struct trace *t); /* a copy */
/* Copies the header anew: a program that runs goes on counting. */
void trace_refresh(struct trace *t);

/*
 * The next record in the order of time, of all rings, each once; NULL: none is
 * there now (later there may be). It is a copy and lives until the next call.
 * Records of different rings that come late are handed out late: time steps
 * back then. PAD and CLOCK are not handed out. *ring: which one.
 */
const struct trace_record *trace_next(struct trace *t, unsigned *ring);

/* Records handed out, and those that were overwritten before, exactly: their
 * sum is the number written, once trace_next() has returned NULL. */
uint64_t trace_read(const struct trace *t);
uint64_t trace_overwritten(const struct trace *t);
/* Places in the file that make no sense, and were passed over: 0, unless it
 * was cut or written to by somebody else. */
uint64_t trace_damaged(const struct trace *t);

/* Of a record's ticks: CLOCK_MONOTONIC, ns since the trace began; and
 * CLOCK_REALTIME in ns. */
uint64_t trace_ns(struct trace *t, uint64_t ticks);
uint64_t trace_realtime(struct trace *t, uint64_t ticks);

/* The module that had this address at that time; NULL: none had, or it is not
 * known. Never a guess. */
const struct trace_segment *trace_segment(struct trace *t, uint64_t address,
                                          uint64_t ticks);
/* NULL: there is no such type, or it is not there yet. */
const struct trace_type *trace_type(const struct trace *t, uint32_t index);

/* The stack of a release, NULL: it has none. *memory: its bytes. */
const struct trace_stack *trace_stack_of(const struct trace_record *r,
                                         const uint8_t **memory);

#endif
