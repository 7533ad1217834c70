/* SPDX-License-Identifier: BSD-3-Clause */
/* Is a file the one that was loaded? */
#ifndef BUILD_ID_H
#define BUILD_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Does the ELF file have this build id, or none where len is 0? False, too,
 * when it cannot be read. The file is untrusted. */
bool build_id_is(const char *file, const uint8_t *id, size_t len);

#endif
