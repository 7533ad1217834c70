/* SPDX-License-Identifier: BSD-3-Clause */
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "inspect.h"

static bool resolve(const char *command, char path[PATH_MAX])
{
    const char *dirs = getenv("PATH"), *end;
    struct stat st;

    if (strchr(command, '/'))
        return snprintf(path, PATH_MAX, "%s", command) < PATH_MAX;
    if (!dirs)
        dirs = "/bin:/usr/bin";
    for (;; dirs = end + 1) {
        int length, written;

        end = strchrnul(dirs, ':');
        length = (int)(end - dirs);
        written = length ? snprintf(path, PATH_MAX, "%.*s/%s", length, dirs,
                                    command)
                         : snprintf(path, PATH_MAX, "%s", command);
        if (written < PATH_MAX && !access(path, X_OK) && !stat(path, &st) &&
            S_ISREG(st.st_mode))
            return true;
        if (!*end)
            return false;
    }
}

/* The kernel would start it in secure mode, where LD_PRELOAD is ignored. */
static const char *privileged(const char *path, int fd)
{
    struct statvfs fs;
    struct stat st;

    if (fstat(fd, &st) || fstatvfs(fd, &fs) || (fs.f_flag & ST_NOSUID))
        return NULL;
    if ((st.st_mode & S_ISUID) && st.st_uid != getuid())
        return "is setuid";
    if ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) &&
        st.st_gid != getgid())
        return "is setgid";
    if (geteuid() && getxattr(path, "security.capability", NULL, 0) > 0)
        return "has file capabilities";
    return NULL;
}

static bool segment(int fd, const Elf64_Ehdr *header, unsigned index,
                    Elf64_Phdr *ph)
{
    return index < header->e_phnum &&
           pread(fd, ph, sizeof(*ph),
                 (off_t)(header->e_phoff + index * sizeof(*ph))) ==
               sizeof(*ph);
}

/* The base name of PT_INTERP; an empty one when there is none. */
static bool interpreter(int fd, const Elf64_Ehdr *header, char name[PATH_MAX])
{
    Elf64_Phdr ph;
    char path[PATH_MAX], *slash;

    name[0] = 0;
    for (unsigned i = 0; segment(fd, header, i, &ph); i++) {
        if (ph.p_type != PT_INTERP)
            continue;
        if (ph.p_filesz < 1 || ph.p_filesz > sizeof(path) ||
            pread(fd, path, ph.p_filesz, (off_t)ph.p_offset) !=
                (ssize_t)ph.p_filesz)
            return false;
        path[ph.p_filesz - 1] = 0;
        slash = strrchr(path, '/');
        strcpy(name, slash ? slash + 1 : path);
        return true;
    }
    return true;
}

static bool header_read(int fd, Elf64_Ehdr *header)
{
    return pread(fd, header, sizeof(*header), 0) == sizeof(*header) &&
           header->e_phentsize == sizeof(Elf64_Phdr);
}

static uint64_t file_offset(int fd, const Elf64_Ehdr *header, uint64_t address)
{
    Elf64_Phdr ph;

    for (unsigned i = 0; segment(fd, header, i, &ph); i++)
        if (ph.p_type == PT_LOAD && address - ph.p_vaddr < ph.p_filesz)
            return address - ph.p_vaddr + ph.p_offset;
    return 0;
}

/* Is a library whose name begins like that among those it needs? */
static bool needs(int fd, const Elf64_Ehdr *header, const char *library)
{
    enum { TAGS = 256 };
    Elf64_Phdr ph = {0};
    Elf64_Dyn tags[TAGS];
    uint64_t strings = 0;
    size_t count;
    ssize_t got;
    char name[64];

    for (unsigned i = 0; segment(fd, header, i, &ph); i++)
        if (ph.p_type == PT_DYNAMIC)
            break;
    if (ph.p_type != PT_DYNAMIC)
        return false;
    count = ph.p_filesz / sizeof(tags[0]);
    got = pread(fd, tags, (count < TAGS ? count : TAGS) * sizeof(tags[0]),
                (off_t)ph.p_offset);
    count = got > 0 ? (size_t)got / sizeof(tags[0]) : 0;
    for (size_t i = 0; i < count; i++)
        if (tags[i].d_tag == DT_STRTAB)
            strings = file_offset(fd, header, tags[i].d_un.d_ptr);
    for (size_t i = 0; strings && i < count; i++)
        if (tags[i].d_tag == DT_NEEDED &&
            pread(fd, name, sizeof(name),
                  (off_t)(strings + tags[i].d_un.d_val)) > 0 &&
            !strncmp(name, library, strlen(library)))
            return true;
    return false;
}

/* Our own loader is the one the library was made for. */
static bool same_interpreter(const char *name)
{
    Elf64_Ehdr header;
    char ours[PATH_MAX];
    bool same = true;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return true;
    if (header_read(fd, &header) && interpreter(fd, &header, ours) && *ours)
        same = !strcmp(ours, name);
    close(fd);
    return same;
}

static const char *elf(int fd, const char *path, const unsigned char *ident,
                       bool *asan)
{
    Elf64_Ehdr header;
    char name[PATH_MAX];
    const char *base = strrchr(path, '/');

    if (ident[EI_CLASS] != ELFCLASS64)
        return "is a 32-bit program";
#ifdef __x86_64__
    if (!header_read(fd, &header) || header.e_machine != EM_X86_64)
        return "is for another processor";
#else
    if (!header_read(fd, &header))
        return NULL;
#endif
    if (!interpreter(fd, &header, name))
        return NULL;
    *asan = needs(fd, &header, "libasan.so") ||
            needs(fd, &header, "libclang_rt.asan");
    if (*name)
        return same_interpreter(name) ? NULL : "uses another C library";
    /* The loader run by hand is static itself, what it loads is not. */
    base = base ? base + 1 : path;
    return strncmp(base, "ld-", 3) && strncmp(base, "ld.so", 5)
               ? "is statically linked"
               : NULL;
}

static const char *look(const char *path, bool follow, bool *asan)
{
    static char sentence[128];
    char start[PATH_MAX] = "", *word;
    const char *why = NULL;
    ssize_t got;
    /* A FIFO of that name must not stop us. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return NULL;
    got = pread(fd, start, sizeof(start) - 1, 0);
    if (got > EI_DATA && !memcmp(start, ELFMAG, SELFMAG)) {
        why = privileged(path, fd);
        if (!why)
            why = elf(fd, path, (unsigned char *)start, asan);
    } else if (got > 2 && !memcmp(start, "#!", 2) && follow) {
        start[strcspn(start, "\n")] = 0;
        word = start + 2 + strspn(start + 2, " \t");
        word[strcspn(word, " \t")] = 0;
        why = look(word, false, asan);
        if (why) {
            snprintf(sentence, sizeof(sentence), "has an interpreter that %s",
                     why);
            why = sentence;
        }
    }
    close(fd);
    return why;
}

struct inspection inspect(const char *command)
{
    struct inspection found = {0};
    char path[PATH_MAX];

    if (resolve(command, path))
        found.blind = look(path, true, &found.asan);
    return found;
}
