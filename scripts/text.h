/* SPDX-License-Identifier: BSD-3-Clause */
/* What reports for people are written with. */
#ifndef TEXT_H
#define TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Names and paths are the program's: they must not drive the terminal. */
void put_text(FILE *out, const char *text, size_t length);
void put_name(FILE *out, const char *name);
/* What is behind the last slash. */
const char *base_name(const char *path);
const char *plural(uint64_t n);
/* 1.2M: one decimal, unless it is 0 or they are bytes. */
const char *human(uint64_t bytes, char text[16]);
/* 3.20 us */
const char *duration(uint64_t ns, char text[16]);

#endif
