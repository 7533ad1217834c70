/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of functions, read from the symbol tables of ELF files. */
#ifndef SYMBOLS_H
#define SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The function of the file that covers the address (as in the file: without
 * load bias), or NULL when the file cannot be read or does not say. Files are
 * untrusted; each is read once. The string lives until symbols_free().
 */
const char *symbols_find(const char *file, uint64_t address);
/* The same, and how far into it the address is. */
const char *symbols_place(const char *file, uint64_t address, uint64_t *into);
/* The same of variables; *offset: how far into it. */
const char *symbols_find_data(const char *file, uint64_t address,
                              uint64_t *offset);
/* Where something of that name is, and how big. */
bool symbols_locate(const char *file, const char *name, uint64_t *address,
                    uint64_t *size);
void symbols_free(void);

#endif
