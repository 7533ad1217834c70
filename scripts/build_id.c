/* SPDX-License-Identifier: BSD-3-Clause */
#include "build_id.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NOTES_MAX = 4096, HEADERS_MAX = 64 };

static bool get(int fd, void *to, size_t size, uint64_t at)
{
    return at <= INT64_MAX - size && pread(fd, to, size, (off_t)at) ==
                                         (ssize_t)size;
}

void build_id_text(const uint8_t *id, size_t len, char text[65])
{
    text[0] = '\0';
    for (size_t i = 0; i < len && i < 32; i++)
        snprintf(text + 2 * i, 3, "%02x", id[i]);
}

size_t build_id_find(const uint8_t *notes, size_t size, const uint8_t **id)
{
    Elf64_Nhdr note;

    for (size_t at = 0; size - at >= sizeof(note);) {
        size_t name, body;

        memcpy(&note, notes + at, sizeof(note));
        at += sizeof(note);
        name = ((size_t)note.n_namesz + 3) & ~(size_t)3;
        body = ((size_t)note.n_descsz + 3) & ~(size_t)3;
        if (name > size - at || body > size - at - name)
            return 0;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            !memcmp(notes + at, "GNU", 4)) {
            *id = notes + at + name;
            return note.n_descsz;
        }
        at += name + body;
    }
    return 0;
}

static bool file_build_id_is(int fd, const uint8_t *id, size_t len)
{
    uint8_t notes[NOTES_MAX];
    const uint8_t *found = NULL;
    size_t found_len = 0;
    Elf64_Ehdr header;
    Elf64_Phdr segment;

    if (!get(fd, &header, sizeof(header), 0) ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) ||
        header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_phentsize != sizeof(segment))
        return false;
    for (unsigned i = 0; i < header.e_phnum && i < HEADERS_MAX; i++) {
        if (!get(fd, &segment, sizeof(segment),
                 header.e_phoff + i * sizeof(segment)))
            return false;
        if (segment.p_type != PT_NOTE || segment.p_filesz > sizeof(notes) ||
            !get(fd, notes, segment.p_filesz, segment.p_offset))
            continue;
        found_len = build_id_find(notes, segment.p_filesz, &found);
        if (found_len)
            break;
    }
    return found_len == len && (!len || !memcmp(found, id, len));
}

bool file_is_older(const struct stat *st, uint64_t than)
{
    return (uint64_t)st->st_ctim.tv_sec * 1000000000u +
               (uint64_t)st->st_ctim.tv_nsec <
           than;
}

bool build_id_is(const struct trace_segment *s, uint64_t loaded)
{
    int fd = open(s->name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;
    bool is = false;

    if (fd < 0)
        return false;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) &&
        (s->build_id_len || file_is_older(&st, loaded)))
        is = file_build_id_is(fd, s->build_id, s->build_id_len);
    close(fd);
    return is;
}
