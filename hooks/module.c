/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Libraries as the loader sees them. Not dlsym(): a program or another
 * preload may define munmap too, and a hook belongs into libc's own.
 */
#include "hooks/module.h"

#include <string.h>

#define VERSION_HIDDEN 0x8000 /* an old version of the symbol */

/* By soname, or by a function that it defines. */
struct search {
    const char *soname, *function;
    struct module *module; /* up to n */
    size_t n, found;
};

/*
 * The loader relocates the addresses in most dynamic sections in place, not
 * in all of them: those below the base are not.
 */
static const void *dynamic_address(ElfW(Addr) base, const ElfW(Dyn) *entry)
{
    uintptr_t address = entry->d_un.d_ptr;

    return (const void *)(address < base ? base + address : address);
}

/* Returns the soname, or NULL. */
static const char *read_dynamic(ElfW(Addr) base, const ElfW(Dyn) *entry,
                                struct module *out)
{
    ElfW(Xword) soname = 0;

    for (; entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SONAME:
            soname = entry->d_un.d_val;
            break;
        case DT_STRTAB:
            out->strings = dynamic_address(base, entry);
            break;
        case DT_SYMTAB:
            out->symbols = dynamic_address(base, entry);
            break;
        case DT_GNU_HASH:
            out->hash = dynamic_address(base, entry);
            break;
        case DT_VERSYM:
            out->versions = dynamic_address(base, entry);
            break;
        }
    }
    return soname && out->strings ? out->strings + soname : NULL;
}

static void read_headers(ElfW(Addr) base, const ElfW(Phdr) *header, size_t n,
                         struct module *out)
{
    out->base = (const uint8_t *)base;
    for (; n; n--, header++) {
        const void *at = (const void *)(base + header->p_vaddr);

        if (header->p_type == PT_DYNAMIC)
            out->soname = read_dynamic(base, at, out);
        if (header->p_type == PT_LOAD && header->p_flags & PF_X &&
            !out->text) {
            out->text = at;
            out->text_size = header->p_filesz;
            out->text_offset = header->p_offset;
        }
    }
}

static bool is_library(const struct module *module, const char *soname)
{
    return module->text && module->soname && !strcmp(module->soname, soname);
}

/* Under the loader's lock: only look, and go. */
static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct search *search = arg;
    struct module module = {.path = info->dlpi_name};
    size_t length;

    (void)size;
    read_headers(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum, &module);
    if (search->function
            ? !module.text ||
                  !module_function(&module, search->function, &length)
            : !is_library(&module, search->soname))
        return 0;
    search->module[search->found++] = module;
    return search->found == search->n;
}

bool module_of_map(const struct link_map *map, const char *soname,
                   struct module *out)
{
    struct module module = {.path = map->l_name};
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)map->l_addr;
    const char *is = map->l_ld ? read_dynamic(map->l_addr, map->l_ld, &module)
                               : NULL;

    /* Only of the library looked for it is known that its first segment has
     * the headers. */
    if (!is || strcmp(is, soname) || memcmp(header->e_ident, ELFMAG, SELFMAG))
        return false;
    read_headers(map->l_addr,
                 (const ElfW(Phdr) *)(map->l_addr + header->e_phoff),
                 header->e_phnum, &module);
    if (!is_library(&module, soname))
        return false;
    *out = module;
    return true;
}

bool module_find(const char *soname, struct module *out)
{
    struct search search = {.soname = soname, .module = out, .n = 1};

    return dl_iterate_phdr(look, &search) == 1;
}

size_t module_defining(const char *function, struct module *out, size_t n)
{
    struct search search = {.function = function, .module = out, .n = n};

    dl_iterate_phdr(look, &search);
    return search.found;
}

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;

    while (*name)
        hash = hash * 33 + (uint8_t)*name++;
    return hash;
}

static bool is_symbol(const struct module *module, uint32_t index,
                      const char *name, unsigned type)
{
    const ElfW(Sym) *symbol = &module->symbols[index];

    return ELF64_ST_TYPE(symbol->st_info) == type &&
           symbol->st_shndx != SHN_UNDEF &&
           !(module->versions && module->versions[index] & VERSION_HIDDEN) &&
           !strcmp(module->strings + symbol->st_name, name);
}

/*
 * A GNU hash section: number of buckets, index of the first symbol in them,
 * words and shift of a Bloom filter; the filter, the buckets, and for each
 * symbol its hash, whose lowest bit is set at the end of a bucket.
 */
static const ElfW(Sym) *find(const struct module *module, const char *name,
                             unsigned type)
{
    const uint32_t *head = module->hash, *buckets, *chain;
    uint32_t hash = hash_of(name), index;

    if (!head || !module->symbols || !module->strings || !head[0])
        return NULL;
    buckets = head + 4 + head[2] * (sizeof(ElfW(Addr)) / sizeof(*head));
    chain = buckets + head[0];
    index = buckets[hash % head[0]];
    if (index < head[1])
        return NULL;
    for (;; index++) {
        uint32_t link = chain[index - head[1]];

        if ((link | 1) == (hash | 1) && is_symbol(module, index, name, type))
            return &module->symbols[index];
        if (link & 1)
            return NULL;
    }
}

const uint8_t *module_function(const struct module *module, const char *name,
                               size_t *size)
{
    const ElfW(Sym) *symbol = find(module, name, STT_FUNC);

    if (!symbol)
        return NULL;
    *size = symbol->st_size;
    return module->base + symbol->st_value;
}

void *module_variable(const struct module *module, const char *name)
{
    const ElfW(Sym) *symbol = find(module, name, STT_OBJECT);

    return symbol ? (void *)(module->base + symbol->st_value) : NULL;
}

/* How many symbols there are: one behind the last that the hash reaches. */
uint32_t module_symbols(const struct module *module)
{
    const uint32_t *head = module->hash, *buckets, *chain;
    uint32_t last = 0;

    if (!head || !module->symbols || !head[0])
        return 0;
    buckets = head + 4 + head[2] * (sizeof(ElfW(Addr)) / sizeof(*head));
    chain = buckets + head[0];
    for (uint32_t i = 0; i < head[0]; i++)
        if (buckets[i] > last)
            last = buckets[i];
    if (last < head[1])
        return head[1];
    while (!(chain[last - head[1]] & 1))
        last++;
    return last + 1;
}
