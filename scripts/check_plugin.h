/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_PLUGIN_H
#define CHECK_PLUGIN_H

#include <stddef.h>

#include "check.h"

#define PLUGIN_BYTES CHECK_BYTES

/* What it exports, and the file itself (check_plugin_file.S). */
extern char check_plugin_memory[PLUGIN_BYTES];
int check_plugin_release(void *addr, size_t len);
extern const char check_plugin_file[], check_plugin_file_end[];

#endif
