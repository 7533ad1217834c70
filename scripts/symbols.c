/* SPDX-License-Identifier: BSD-3-Clause */
#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "symbols.h"

struct image {
    const unsigned char *bytes;
    size_t size;
};

struct symbol {
    uint64_t value;
    uint64_t size;
    const char *name;
    bool data;
};

struct module {
    struct module *next;
    struct image images[2]; /* the file, and its separate debug file */
    struct symbol *symbols;
    size_t count, room;
    char path[];
};

static struct module *modules;

/* Copies, as nothing in a file need be aligned; false outside the file. */
static bool image_get(const struct image *image, uint64_t at, void *to,
                      size_t size)
{
    if (at > image->size || image->size - at < size)
        return false;
    memcpy(to, image->bytes + at, size);
    return true;
}

static const char *image_string(const struct image *image,
                                const Elf64_Shdr *table, uint64_t at)
{
    const char *string;

    if (table->sh_offset > image->size ||
        table->sh_size > image->size - table->sh_offset ||
        at >= table->sh_size)
        return NULL;
    string = (const char *)image->bytes + table->sh_offset + at;
    return memchr(string, 0, table->sh_size - at) ? string : NULL;
}

static void image_open(struct image *image, const char *path)
{
    struct stat st;
    void *map = MAP_FAILED;
    /* The path comes out of a report: it may be a FIFO or a terminal. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0)
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return;
    image->bytes = map;
    image->size = (size_t)st.st_size;
}

static bool image_header(const struct image *image, Elf64_Ehdr *header)
{
    return image_get(image, 0, header, sizeof(*header)) &&
           !memcmp(header->e_ident, ELFMAG, SELFMAG) &&
           header->e_ident[EI_CLASS] == ELFCLASS64 &&
           header->e_ident[EI_DATA] == ELFDATA2LSB &&
           header->e_shentsize == sizeof(Elf64_Shdr);
}

static bool image_section(const struct image *image, const Elf64_Ehdr *header,
                          size_t index, Elf64_Shdr *section)
{
    return index < header->e_shnum && header->e_shoff <= image->size &&
           image_get(image, header->e_shoff + index * sizeof(*section),
                     section, sizeof(*section));
}

static bool module_add(struct module *module, const Elf64_Sym *sym,
                       const char *name)
{
    if (module->count == module->room) {
        size_t room = module->room ? 2 * module->room : 1024;
        struct symbol *more =
            realloc(module->symbols, room * sizeof(*more));

        if (!more)
            return false;
        module->symbols = more;
        module->room = room;
    }
    module->symbols[module->count++] =
        (struct symbol){sym->st_value, sym->st_size, name,
                        ELF64_ST_TYPE(sym->st_info) == STT_OBJECT};
    return true;
}

static void module_add_table(struct module *module, const struct image *image,
                             const Elf64_Shdr *table, const Elf64_Shdr *names)
{
    Elf64_Sym sym;
    uint64_t at = table->sh_offset;

    for (uint64_t n = table->sh_size / sizeof(sym); n > 0; n--) {
        const char *name;
        unsigned type;

        if (!image_get(image, at, &sym, sizeof(sym)))
            return;
        at += sizeof(sym);
        type = ELF64_ST_TYPE(sym.st_info);
        if ((type != STT_FUNC && type != STT_GNU_IFUNC &&
             type != STT_OBJECT) ||
            !sym.st_size || sym.st_shndx == SHN_UNDEF)
            continue;
        name = image_string(image, names, sym.st_name);
        if (name && *name && !module_add(module, &sym, name))
            return;
    }
}

/* True when it has a full symbol table, not only that of its exports. */
static bool module_add_image(struct module *module, const struct image *image)
{
    Elf64_Ehdr header;
    Elf64_Shdr table, names;
    bool full = false;

    if (!image_header(image, &header))
        return false;
    for (size_t i = 0; image_section(image, &header, i, &table); i++) {
        if (table.sh_type != SHT_SYMTAB && table.sh_type != SHT_DYNSYM)
            continue;
        if (table.sh_offset > image->size ||
            !image_section(image, &header, table.sh_link, &names))
            continue;
        module_add_table(module, image, &table, &names);
        full |= table.sh_type == SHT_SYMTAB;
    }
    return full;
}

/* Where a distribution keeps what was stripped, by the build id. */
static bool image_debug_path(const struct image *image, char *path,
                             size_t room)
{
    Elf64_Ehdr header;
    Elf64_Shdr section;
    Elf64_Nhdr note;
    unsigned char id[64];
    uint64_t at;
    int used;

    if (!image_header(image, &header))
        return false;
    for (size_t i = 0; image_section(image, &header, i, &section); i++) {
        at = section.sh_offset;
        if (section.sh_type != SHT_NOTE || at > image->size ||
            !image_get(image, at, &note, sizeof(note)) ||
            note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 ||
            note.n_descsz < 2 || note.n_descsz > sizeof(id) ||
            !image_get(image, at + sizeof(note) + 4, id, note.n_descsz))
            continue;
        used = snprintf(path, room, "/usr/lib/debug/.build-id/%02x/", id[0]);
        for (size_t b = 1; b < note.n_descsz; b++)
            used += snprintf(path + used, room - (size_t)used, "%02x", id[b]);
        snprintf(path + used, room - (size_t)used, ".debug");
        return true;
    }
    return false;
}

/* One address has many names in libc: the plainest one comes first. */
static int symbol_order(const void *left, const void *right)
{
    const struct symbol *a = left, *b = right;
    size_t under_a = strspn(a->name, "_"), under_b = strspn(b->name, "_");
    size_t length_a = strlen(a->name), length_b = strlen(b->name);

    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    if (under_a != under_b)
        return under_a < under_b ? -1 : 1;
    if (length_a != length_b)
        return length_a < length_b ? -1 : 1;
    return strcmp(a->name, b->name);
}

static struct module *module_open(const char *file)
{
    size_t length = strlen(file) + 1;
    struct module *module = calloc(1, sizeof(*module) + length);
    char path[256];

    if (!module)
        return NULL;
    memcpy(module->path, file, length);
    module->next = modules;
    modules = module;
    image_open(&module->images[0], file);
    if (!module->images[0].bytes)
        return module;
    if (!module_add_image(module, &module->images[0]) &&
        image_debug_path(&module->images[0], path, sizeof(path))) {
        image_open(&module->images[1], path);
        if (module->images[1].bytes)
            module_add_image(module, &module->images[1]);
    }
    if (module->count)
        qsort(module->symbols, module->count, sizeof(struct symbol),
              symbol_order);
    return module;
}

static const struct symbol *module_find(const struct module *module,
                                        uint64_t address, bool data)
{
    enum { LOOK_BACK = 64 }; /* functions nest rarely, and never deep */
    size_t low = 0, high = module->count;
    const struct symbol *found = NULL;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (module->symbols[middle].value <= address)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t i = low, n = 0; i > 0 && n < LOOK_BACK; n++) {
        const struct symbol *s = &module->symbols[--i];

        if (s->data != data)
            continue;
        if (found && s->value != found->value)
            break;
        if (address - s->value < s->size)
            found = s;
    }
    return found;
}

static struct module *module_of(const char *file)
{
    struct module *module = modules;

    while (module && strcmp(module->path, file))
        module = module->next;
    return module ? module : module_open(file);
}

static const char *place(const char *file, uint64_t address, bool data,
                         uint64_t *into)
{
    const struct module *module = module_of(file);
    const struct symbol *s =
        module ? module_find(module, address, data) : NULL;

    *into = s ? address - s->value : 0;
    return s ? s->name : NULL;
}

const char *symbols_place(const char *file, uint64_t address, uint64_t *into)
{
    return place(file, address, false, into);
}

const char *symbols_find(const char *file, uint64_t address)
{
    uint64_t into;

    return symbols_place(file, address, &into);
}

const char *symbols_find_data(const char *file, uint64_t address,
                              uint64_t *offset)
{
    return place(file, address, true, offset);
}

bool symbols_locate(const char *file, const char *name, uint64_t *address,
                    uint64_t *size)
{
    const struct module *module = module_of(file);

    for (size_t i = 0; module && i < module->count; i++) {
        if (strcmp(module->symbols[i].name, name))
            continue;
        *address = module->symbols[i].value;
        *size = module->symbols[i].size;
        return true;
    }
    return false;
}

void symbols_free(void)
{
    while (modules) {
        struct module *module = modules;

        modules = module->next;
        for (size_t i = 0; i < 2; i++)
            if (module->images[i].bytes)
                munmap((void *)module->images[i].bytes,
                       module->images[i].size);
        free(module->symbols);
        free(module);
    }
}
