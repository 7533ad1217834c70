/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A loaded library, read from its own headers: what it is itself, whoever
 * interposes its symbols.
 */
#ifndef LAPSE_MODULE_H
#define LAPSE_MODULE_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct module {
    const uint8_t *base;  /* what its addresses are relative to */
    const char *path;     /* of its file; lives as long as it is loaded */
    const char *soname;   /* likewise; NULL if it has none */
    const uint8_t *text;  /* its executable segment, mapped from ... */
    size_t text_size;
    uint64_t text_offset; /* ... here in the file */
    const ElfW(Sym) *symbols;
    const ElfW(Half) *versions;
    const char *strings;
    const uint32_t *hash; /* DT_GNU_HASH */
};

/* The library of this soname in our namespace. Takes the loader's lock. */
bool module_find(const char *soname, struct module *out);

/* The same of a library in any namespace, if it has that soname. It is mapped,
 * and stays so while this runs. */
bool module_of_map(const struct link_map *map, const char *soname,
                   struct module *out);

/* The variable that the library itself defines by that name, or NULL. */
void *module_variable(const struct module *module, const char *name);

/*
 * The libraries of our namespace, and the program, that define a function of
 * this name themselves: up to n of them. Returns how many. As above.
 */
size_t module_defining(const char *function, struct module *out, size_t n);

/* The function that the library itself defines by that name, or NULL. */
const uint8_t *module_function(const struct module *module, const char *name,
                               size_t *size);

/* The number of entries of symbols[]. */
uint32_t module_symbols(const struct module *module);

#endif
