/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The system calls that release memory. What the kernel's filter cannot tell
 * is found out here, for calls that nobody was told of only, while the thread
 * that makes the call waits for us. In doubt a call releases.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "audit.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#define ADVICE_SOFT_OFFLINE 101
#define ADVICE_GUARD_INSTALL 102
#define PAGE 4096ull

const uint32_t audit_advice[] = {MADV_DONTNEED,       MADV_FREE,
                                 MADV_REMOVE,         MADV_DONTNEED_LOCKED,
                                 MADV_HWPOISON,       ADVICE_SOFT_OFFLINE,
                                 ADVICE_GUARD_INSTALL};
const size_t audit_advice_count = sizeof(audit_advice) / sizeof(*audit_advice);

static uint64_t page_up(uint64_t address)
{
    return (address + PAGE - 1) & ~(PAGE - 1);
}

/* The kernel refuses a start within a page, and does nothing for no bytes. */
static bool is_range(uint64_t start, uint64_t length)
{
    return !(start % PAGE) && length;
}

static bool range_releases(pid_t pid, const uint64_t *a)
{
    (void)pid;
    return is_range(a[0], a[1]);
}

static bool mremap_releases(pid_t pid, const uint64_t *a)
{
    (void)pid;
    if (a[0] % PAGE || !a[2])
        return false;
    if (a[3] & (MREMAP_FIXED | MREMAP_DONTUNMAP))
        return true;
    if (page_up(a[2]) < page_up(a[1]))
        return true;
    return page_up(a[2]) > page_up(a[1]) && (a[3] & MREMAP_MAYMOVE);
}

static bool is_heap_beyond(const struct audit_mapping *m, void *address)
{
    return !strcmp(m->path, "[heap]") && m->end > *(uint64_t *)address;
}

static bool brk_releases(pid_t pid, const uint64_t *a)
{
    uint64_t end = page_up(a[0]);

    return audit_maps_find(pid, is_heap_beyond, &end);
}

static bool shmat_releases(pid_t pid, const uint64_t *a)
{
    (void)pid;
    return a[1];
}

/* By inode and by name: file systems differ in what they show in maps. */
struct file {
    uint64_t inode;
    char path[PATH_MAX];
};

static bool is_mapping_of(const struct audit_mapping *m, void *argument)
{
    const struct file *file = argument;

    return (m->inode && m->inode == file->inode) ||
           (*m->path == '/' && !strcmp(m->path, file->path));
}

/* A file below /proc/PID: mapped by that process, and longer than `length`? */
static bool is_mapped(pid_t pid, const char *path, uint64_t length)
{
    struct file file;
    struct stat st;

    if (stat(path, &st))
        return errno != ENOENT && errno != EBADF;
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size <= length)
        return false;
    file.inode = st.st_ino;
    if (!realpath(path, file.path))
        file.path[0] = 0;
    return audit_maps_find(pid, is_mapping_of, &file);
}

static bool fd_mapped(pid_t pid, uint64_t fd, uint64_t length)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, (int)fd);
    return is_mapped(pid, path, length);
}

static bool read_memory(pid_t pid, uint64_t from, void *to, size_t size)
{
    struct iovec local = {to, size};
    struct iovec remote = {(void *)(uintptr_t)from, size};

    return process_vm_readv(pid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

static bool read_string(pid_t pid, uint64_t from, char *to, size_t room)
{
    size_t used = 0;

    /* Not across a page that may not be there. */
    while (used < room) {
        size_t part = PAGE - (from + used) % PAGE;

        if (part > room - used)
            part = room - used;
        if (!read_memory(pid, from + used, to + used, part))
            return false;
        if (memchr(to + used, 0, part))
            return true;
        used += part;
    }
    return false;
}

static bool path_mapped(pid_t pid, int dir, uint64_t name, uint64_t length)
{
    char given[PATH_MAX], path[PATH_MAX + 64];

    if (!read_string(pid, name, given, sizeof(given)))
        return false; /* the kernel cannot read it either */
    if (*given == '/')
        snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, given);
    else if (dir == AT_FDCWD)
        snprintf(path, sizeof(path), "/proc/%d/cwd/%s", (int)pid, given);
    else
        snprintf(path, sizeof(path), "/proc/%d/fd/%d/%s", (int)pid, dir,
                 given);
    return is_mapped(pid, path, length);
}

static bool fallocate_releases(pid_t pid, const uint64_t *a)
{
    return fd_mapped(pid, a[0], 0);
}

static bool ftruncate_releases(pid_t pid, const uint64_t *a)
{
    return fd_mapped(pid, a[0], a[1]);
}

static bool truncate_releases(pid_t pid, const uint64_t *a)
{
    return path_mapped(pid, AT_FDCWD, a[0], a[1]);
}

static bool open_releases(pid_t pid, const uint64_t *a)
{
    return path_mapped(pid, AT_FDCWD, a[0], 0);
}

static bool openat_releases(pid_t pid, const uint64_t *a)
{
    return path_mapped(pid, (int)a[0], a[1], 0);
}

static bool openat2_releases(pid_t pid, const uint64_t *a)
{
    uint64_t flags;

    return read_memory(pid, a[2], &flags, sizeof(flags)) &&
           (flags & O_TRUNC) && openat_releases(pid, a);
}

#define FALLOC_RELEASES                                                       \
    (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE |                        \
     FALLOC_FL_ZERO_RANGE | FALLOC_FL_INSERT_RANGE)

/* Those that are called most, and often do not release, come first. */
const struct audit_call audit_calls[] = {
    {"mmap", SYS_mmap, 192, WHEN_MASKED, 3,
     MAP_FIXED | MAP_FIXED_NOREPLACE, MAP_FIXED, range_releases},
    {"openat", SYS_openat, 295, WHEN_ANY, 2, O_TRUNC, 0, openat_releases},
    {"open", SYS_open, 5, WHEN_ANY, 1, O_TRUNC, 0, open_releases},
    {"munmap", SYS_munmap, 91, WHEN_ALWAYS, 0, 0, 0, range_releases},
    {"madvise", SYS_madvise, 219, WHEN_ADVICE, 2, 0, 0, range_releases},
    {"brk", SYS_brk, 45, WHEN_NONZERO, 0, 0, 0, brk_releases},
    {"mremap", SYS_mremap, 163, WHEN_ALWAYS, 0, 0, 0, mremap_releases},
    {"shmdt", SYS_shmdt, 398, WHEN_ALWAYS, 0, 0, 0, NULL},
    {"shmat", SYS_shmat, 397, WHEN_ANY, 2, SHM_REMAP, 0, shmat_releases},
    {"process_madvise", SYS_process_madvise, 440, WHEN_ADVICE, 3, 0, 0, NULL},
    {"remap_file_pages", SYS_remap_file_pages, 257, WHEN_ALWAYS, 0, 0, 0,
     NULL},
    {"fallocate", SYS_fallocate, 324, WHEN_ANY, 1, FALLOC_RELEASES, 0,
     fallocate_releases},
    {"ftruncate", SYS_ftruncate, 93, WHEN_ALWAYS, 0, 0, 0,
     ftruncate_releases},
    {"truncate", SYS_truncate, 92, WHEN_ALWAYS, 0, 0, 0, truncate_releases},
    {"creat", SYS_creat, 8, WHEN_ALWAYS, 0, 0, 0, open_releases},
    {"openat2", SYS_openat2, 437, WHEN_ALWAYS, 0, 0, 0, openat2_releases},
    {"io_uring_setup", SYS_io_uring_setup, 425, WHEN_ALWAYS, 0, 0, 0, NULL},
    /* arguments in other places than above: not looked at */
    {"mmap", AUDIT_NONE, 90, WHEN_ALWAYS, 0, 0, 0, NULL},
    {"ftruncate64", AUDIT_NONE, 194, WHEN_ALWAYS, 0, 0, 0, NULL},
    {"truncate64", AUDIT_NONE, 193, WHEN_ALWAYS, 0, 0, 0, NULL},
    {"ipc(SHMDT)", AUDIT_NONE, 117, WHEN_MASKED, 0, 0xffff, 22, NULL},
};
const size_t audit_calls_count = sizeof(audit_calls) / sizeof(*audit_calls);

bool audit_call_is_uring(const struct audit_call *call)
{
    return call->nr == SYS_io_uring_setup;
}

bool audit_call_is_sign(const struct audit_call *call,
                        const uint64_t *arguments)
{
    return call->nr == SYS_madvise && (int)arguments[2] == MADV_DONTNEED;
}

bool audit_call_unmaps(const struct audit_call *call,
                       const uint64_t *arguments, uint64_t *start,
                       uint64_t *end)
{
    *start = arguments[0];
    *end = arguments[0] + arguments[1];
    if (call->nr == SYS_mremap && (arguments[3] & MREMAP_FIXED)) {
        *start = 0; /* two ranges */
        *end = UINT64_MAX;
    }
    return call->nr == SYS_munmap || call->nr == SYS_mmap ||
           call->nr == SYS_mremap;
}
