/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows: holes punched in, and ends cut off, a file that is mapped and watched.
 * A memfd, or, for what tmpfs cannot do, a file in TMPDIR.
 */
#include "check_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check_memory.h"

enum { HALF = CHECK_BYTES / 2 };

/* A name for the file, and another description of it: by way of /proc. */
static void name_of(struct scene *s, char name[32])
{
    snprintf(name, 32, "/proc/self/fd/%d", s->fd);
}

static bool reopen(struct scene *s, int flags)
{
    char name[32];

    name_of(s, name);
    s->other_fd = open(name, flags | O_CLOEXEC);
    return done(s, s->other_fd >= 0, "open of a second descriptor");
}

bool file_two_fds_setup(struct scene *s)
{
    return shared_setup(s) && reopen(s, O_RDWR);
}

bool file_on_disk_setup(struct scene *s)
{
    const char *dir = getenv("TMPDIR");
    char zero[PAGE_BYTES] = "";

    s->fd = open(dir && *dir ? dir : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC,
                 0600);
    if (s->fd < 0)
        return cannot(s, "open(O_TMPFILE)");
    for (int i = 0; i < 2 * CHECK_PAGES; i++)
        if (write(s->fd, zero, sizeof(zero)) != sizeof(zero))
            return cannot(s, "write");
    s->addr = mmap(NULL, CHECK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                   s->fd, 0);
    release_names(s, page_of(s, 2), 4 * PAGE_BYTES);
    return done(s, s->addr != MAP_FAILED, "mmap");
}

static bool allocate(struct scene *s, int fd, int mode, const char *what)
{
    return done(s, !fallocate(fd, mode, s->named - s->addr,
                              (off_t)s->named_len), what);
}

bool punch_release(struct scene *s)
{
    return allocate(s, s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    "FALLOC_FL_PUNCH_HOLE");
}

bool punch_other_release(struct scene *s)
{
    return allocate(s, s->other_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    "FALLOC_FL_PUNCH_HOLE");
}

/* All behind it moves down, so all to the end of the file is another page. */
/* The same by the older interface, which glibc has no declaration of. */
bool punch_ioctl_release(struct scene *s)
{
    struct {
        int16_t type, whence;
        int64_t start, len;
        int32_t sysid;
        uint32_t pid;
        int32_t pad[4];
    } range = {.start = s->named - s->addr, .len = (int64_t)s->named_len};

    return done(s, !ioctl(s->fd, _IOW('X', 43, range), &range),
                "FS_IOC_UNRESVSP");
}

bool collapse_release(struct scene *s)
{
    if (!allocate(s, s->fd, FALLOC_FL_COLLAPSE_RANGE,
                  "FALLOC_FL_COLLAPSE_RANGE"))
        return false;
    release_names(s, s->named, (size_t)(s->addr + CHECK_BYTES - s->named));
    return true;
}

bool zero_release(struct scene *s)
{
    return allocate(s, s->fd, FALLOC_FL_ZERO_RANGE, "FALLOC_FL_ZERO_RANGE");
}

/* Cuts off the second half of what is mapped. */
static bool cut(struct scene *s, int error, const char *what)
{
    release_names(s, s->addr + HALF, HALF);
    return done(s, !error, what);
}

bool ftruncate_release(struct scene *s)
{
    return cut(s, ftruncate(s->fd, HALF), "ftruncate");
}

bool ftruncate_other_release(struct scene *s)
{
    return cut(s, ftruncate(s->other_fd, HALF), "ftruncate");
}

bool ftruncate_syscall_release(struct scene *s)
{
    return cut(s, (int)syscall(SYS_ftruncate, s->fd, (long)HALF),
               "syscall(SYS_ftruncate)");
}

bool truncate_release(struct scene *s)
{
    char name[32];

    name_of(s, name);
    return cut(s, truncate(name, HALF), "truncate");
}

bool open_release(struct scene *s)
{
    release_names(s, s->addr, CHECK_BYTES);
    return reopen(s, O_RDWR | O_TRUNC);
}

void file_give_back(struct scene *s)
{
    if (ftruncate(s->fd, 2 * CHECK_BYTES))
        return; /* the judge will find that the pages cannot be reached */
}
