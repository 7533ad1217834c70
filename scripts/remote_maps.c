/* SPDX-License-Identifier: BSD-3-Clause */
/* The modules of a process: files that are mapped, and which is what. */
#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "remote.h"

struct mapping {
    uint64_t start, end, offset, inode;
    const char *path;
};

/* By its own name, or as the process sees it (a container, a chroot); only if
 * that is the very file. NULL: gone. */
static char *file_of(pid_t pid, const struct mapping *m)
{
    struct stat st;
    char *file;

    if (*m->path != '/')
        return NULL;
    if (!stat(m->path, &st) && st.st_ino == m->inode)
        return strdup(m->path);
    if (asprintf(&file, "/proc/%d/root%s", (int)pid, m->path) < 0)
        return NULL;
    if (!stat(file, &st) && st.st_ino == m->inode)
        return file;
    free(file);
    return NULL;
}

static bool header_read(int fd, Elf64_Ehdr *header)
{
    return pread(fd, header, sizeof(*header), 0) == sizeof(*header) &&
           !memcmp(header->e_ident, ELFMAG, SELFMAG) &&
           header->e_ident[EI_CLASS] == ELFCLASS64 &&
           header->e_phentsize == sizeof(Elf64_Phdr);
}

/* From one of its mappings: the bias, and how far it reaches, .bss included. */
static bool elf_place(int fd, const struct mapping *at,
                      struct remote_module *m)
{
    Elf64_Ehdr header;
    Elf64_Phdr ph;
    uint64_t low = UINT64_MAX, high = 0;
    bool found = false;

    if (!header_read(fd, &header))
        return false;
    for (unsigned i = 0; i < header.e_phnum; i++) {
        uint64_t page;

        if (pread(fd, &ph, sizeof(ph),
                  (off_t)(header.e_phoff + i * sizeof(ph))) != sizeof(ph))
            return false;
        if (ph.p_type != PT_LOAD)
            continue;
        page = ph.p_offset & ~(uint64_t)4095;
        if (!found && at->offset - page <
                          ph.p_offset - page + ph.p_filesz) {
            m->bias = at->start - (at->offset - ph.p_offset + ph.p_vaddr);
            found = true;
        }
        low = ph.p_vaddr < low ? ph.p_vaddr : low;
        if (ph.p_vaddr + ph.p_memsz > high)
            high = ph.p_vaddr + ph.p_memsz;
    }
    if (!found)
        return false;
    m->start = m->bias + (low & ~(uint64_t)4095);
    m->end = m->bias + high;
    return true;
}

static struct remote_module *module_new(pid_t pid, const struct mapping *at)
{
    size_t length = strlen(at->path) + 1;
    struct remote_module *m = calloc(1, sizeof(*m) + length);
    int fd;

    if (!m)
        return NULL;
    memcpy(m->name, at->path, length);
    m->file = file_of(pid, at);
    m->start = at->start;
    m->end = at->end;
    m->bias = at->start - at->offset;
    fd = m->file ? open(m->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
                 : -1;
    if (fd >= 0) {
        m->elf = elf_place(fd, at, m);
        close(fd);
    }
    return m;
}

/* The same file once more, from dlmopen() or as data, has another bias. */
static void add(struct remote *r, const struct mapping *at)
{
    struct remote_module *m = r->modules;

    while (m && (strcmp(m->name, at->path) ||
                 (m->elf ? at->start < m->start || at->start >= m->end
                         : at->start - at->offset != m->bias)))
        m = m->next;
    if (m) {
        if (!m->elf && at->end > m->end)
            m->end = at->end;
        return;
    }
    m = module_new(r->task, at);
    if (!m)
        return;
    m->next = r->modules;
    r->modules = m;
}

void remote_maps_read(struct remote *r)
{
    char path[32], *line = NULL;
    size_t room = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/maps", (int)r->task);
    file = fopen(path, "re");
    if (!file)
        return;
    while (getline(&line, &room, file) > 0) {
        struct mapping m = {0};
        int name = 0;

        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64
                         " %*x:%*x %" SCNu64 " %n",
                   &m.start, &m.end, &m.offset, &m.inode, &name) < 4 ||
            !name || (line[name] != '/' && strcmp(line + name, "[vdso]")))
            continue;
        m.path = line + name;
        add(r, &m);
    }
    free(line);
    fclose(file);
}

/* A file that is no ELF may be mapped within the hull of one that is. */
const struct remote_module *remote_module_at(const struct remote *r,
                                             uint64_t address)
{
    const struct remote_module *found = NULL;

    for (const struct remote_module *m = r->modules; m; m = m->next)
        if (address >= m->start && address < m->end && (!found || m->elf))
            found = m;
    return found;
}

bool remote_is(const struct remote_module *m, const char *const *names)
{
    const char *base = m ? strrchr(m->name, '/') : NULL;

    for (; base && *names; names++)
        if (!strncmp(base + 1, *names, strlen(*names)))
            return true;
    return false;
}

bool remote_is_lapse(const struct remote_module *m)
{
    static const char *const names[] = {"liblapse.so", "liblapse-test.so",
                                        NULL};
    return remote_is(m, names);
}

bool remote_is_libc(const struct remote_module *m)
{
    static const char *const names[] = {"libc.so.", "libc-2.", "libpthread",
                                        NULL};
    return remote_is(m, names);
}

bool remote_is_loader(const struct remote_module *m)
{
    static const char *const names[] = {"ld-linux", "ld-2.", "ld.so", NULL};
    return remote_is(m, names);
}

bool remote_is_allocator(const struct remote_module *m)
{
    static const char *const names[] = {"libjemalloc", "libtcmalloc",
                                        "libmimalloc", "libtbbmalloc", NULL};
    return remote_is(m, names);
}
