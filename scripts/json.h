/* SPDX-License-Identifier: BSD-3-Clause */
/* Strings of a JSON document, quoted. They need not be UTF-8. */
#ifndef JSON_H
#define JSON_H

#include <stddef.h>
#include <stdio.h>

void json_string(FILE *out, const char *text, size_t length);
void json_string_or_null(FILE *out, const char *text);

#endif
