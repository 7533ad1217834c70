/* SPDX-License-Identifier: BSD-3-Clause */
#include "build_id.h"
#include "unwind_file.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

static struct unwind_file *files;

static const void *raw(const struct unwind_file *f, uint64_t at, uint64_t n)
{
    return at <= f->size && f->size - at >= n ? f->bytes + at : NULL;
}

/* The i-th program header; nothing in a file need be aligned. */
static bool program_header(const struct unwind_file *f, size_t i,
                           Elf64_Phdr *header)
{
    const void *at = raw(f, 0, sizeof(Elf64_Ehdr));
    Elf64_Ehdr file;

    if (!at)
        return false;
    memcpy(&file, at, sizeof(file));
    if (memcmp(file.e_ident, ELFMAG, SELFMAG) ||
        file.e_ident[EI_CLASS] != ELFCLASS64 ||
        file.e_phentsize != sizeof(*header) || i >= file.e_phnum ||
        file.e_phoff > f->size)
        return false;
    at = raw(f, file.e_phoff + i * sizeof(*header), sizeof(*header));
    if (at)
        memcpy(header, at, sizeof(*header));
    return at;
}

const void *unwind_file_at(const struct unwind_file *f, uint64_t address,
                           size_t bytes)
{
    Elf64_Phdr h;

    for (size_t i = 0; program_header(f, i, &h); i++)
        if (h.p_type == PT_LOAD && !(h.p_flags & PF_W) &&
            address >= h.p_vaddr && address - h.p_vaddr <= h.p_filesz &&
            h.p_filesz - (address - h.p_vaddr) >= bytes &&
            h.p_offset <= f->size)
            return raw(f, h.p_offset + (address - h.p_vaddr), bytes);
    return NULL;
}

static void read_notes(struct unwind_file *f, const Elf64_Phdr *header)
{
    const uint8_t *notes = raw(f, header->p_offset, header->p_filesz), *id;
    size_t len = notes ? build_id_find(notes, header->p_filesz, &id) : 0;

    if (!len || len > sizeof(f->build_id) || f->build_id_len)
        return;
    f->build_id_len = (uint8_t)len;
    memcpy(f->build_id, id, len);
}

/* .eh_frame_hdr with a table as every linker makes it: version 1, a pointer
 * and a count of 4 bytes, then pairs relative to its own address. */
static void read_table(struct unwind_file *f, const Elf64_Phdr *h)
{
    enum { HEAD = 12, SDATA4_PCREL = 0x1b, UDATA4 = 0x03, TABLE = 0x3b };
    const uint8_t *at = unwind_file_at(f, h->p_vaddr, HEAD);
    uint32_t count;

    if (!at || at[0] != 1 || at[1] != SDATA4_PCREL || at[2] != UDATA4 ||
        at[3] != TABLE)
        return;
    memcpy(&count, at + 8, sizeof(count));
    if (!unwind_file_at(f, h->p_vaddr + HEAD, (size_t)count * 8))
        return;
    f->header = h->p_vaddr;
    f->table = h->p_vaddr + HEAD;
    f->entries = count;
}

static void read_range(struct unwind_file *f, const Elf64_Phdr *h)
{
    uint64_t page = 4095, start = h->p_vaddr & ~page;
    uint64_t end = (h->p_vaddr + h->p_memsz + page) & ~page;

    if (!f->end || start < f->start)
        f->start = start;
    if (end > f->end)
        f->end = end;
}

static void read_headers(struct unwind_file *f)
{
    Elf64_Phdr h;

    for (size_t i = 0; program_header(f, i, &h); i++) {
        if (h.p_type == PT_LOAD)
            read_range(f, &h);
        if (h.p_type == PT_NOTE)
            read_notes(f, &h);
        if (h.p_type == PT_GNU_EH_FRAME)
            read_table(f, &h);
    }
}

/* That of the kernel is in our memory too; the build id tells whether it is
 * the same one. */
static void map_vdso(struct unwind_file *f)
{
    Elf64_Phdr h;

    f->bytes = (const uint8_t *)getauxval(AT_SYSINFO_EHDR);
    f->size = f->bytes ? 4096 : 0;
    for (size_t i = 0, size = 0; program_header(f, i, &h); i++)
        if (h.p_type == PT_LOAD && h.p_offset + h.p_filesz > size)
            f->size = size = h.p_offset + h.p_filesz;
}

static void map_file(struct unwind_file *f)
{
    void *map = MAP_FAILED;
    /* The name comes out of a trace: it may be a FIFO or a terminal. */
    int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return;
    if (!fstat(fd, &f->st) && S_ISREG(f->st.st_mode) && f->st.st_size > 0)
        map = mmap(NULL, (size_t)f->st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return;
    f->bytes = map;
    f->size = (size_t)f->st.st_size;
    f->mapped = true;
}

static struct unwind_file *file_open(const char *path)
{
    struct unwind_file *f = calloc(1, sizeof(*f));

    if (!f || !(f->path = strdup(path))) {
        free(f);
        return NULL;
    }
    if (!strcmp(path, "[vdso]"))
        map_vdso(f);
    else
        map_file(f);
    if (f->bytes)
        read_headers(f);
    f->next = files;
    files = f;
    return f;
}

const struct unwind_file *unwind_file_of(const struct trace_segment *s,
                                         uint64_t loaded)
{
    struct unwind_file *f = files;

    while (f && strcmp(f->path, s->name))
        f = f->next;
    if (!f)
        f = file_open(s->name);
    /* Not all have a build id; those that have none may look alike, and one
     * that was put in the place of the other is newer. */
    if (!f || !f->bytes || f->start != s->start - s->bias ||
        f->end != s->end - s->bias || f->build_id_len != s->build_id_len ||
        memcmp(f->build_id, s->build_id, s->build_id_len) ||
        (!f->build_id_len && f->mapped && !file_is_older(&f->st, loaded)))
        return NULL;
    return f;
}

void unwind_files_free(void)
{
    while (files) {
        struct unwind_file *f = files;

        files = f->next;
        if (f->mapped)
            munmap((void *)f->bytes, f->size);
        free(f->path);
        free(f);
    }
}
