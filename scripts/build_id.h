/* SPDX-License-Identifier: BSD-3-Clause */
/* Is a file the one that was loaded? */
#ifndef BUILD_ID_H
#define BUILD_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "shim/trace_file.h"

/* In hexadecimal. text: of 65 bytes; an id of a trace has 32 at most. */
void build_id_text(const uint8_t *id, size_t len, char text[65]);
/* Among these notes of an ELF file: how long, 0: it is not there. Untrusted. */
size_t build_id_find(const uint8_t *notes, size_t size, const uint8_t **id);

/* Was this file as it is before that moment, in ns since 1970? By the time of
 * its last change, which also a renaming is, and which nobody can set. */
bool file_is_older(const struct stat *st, uint64_t than);

/* Does the ELF file of a segment, loaded at that moment, have its build id? If
 * what was loaded had none, it has none either, and was not changed since.
 * False, too, when it cannot be read. The file is untrusted. */
bool build_id_is(const struct trace_segment *s, uint64_t loaded);

#endif
