/* SPDX-License-Identifier: BSD-3-Clause */
#include "own_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "sys.h"

/* Names that tell our files of one pid apart. */
#define FILES_MAX 10000
#define OWN_MODE (S_IRUSR | S_IWUSR)

static void put_number(char **p, unsigned long n)
{
    char digits[20];
    int i = 0;

    do
        digits[i++] = (char)('0' + n % 10);
    while (n /= 10);
    while (i)
        *(*p)++ = digits[--i];
}

/* The program may change its directory: a relative path is made absolute. */
static int make_absolute(struct own_dir *dir, const char *path)
{
    size_t len = strlen(path), at = 0;

    if (path[0] != '/') {
        long n = sys(SYS_getcwd, dir->path, OWN_PATH_MAX);

        if (n < 0)
            return (int)n;
        at = (size_t)n - 1;
        dir->path[at++] = '/';
    }
    if (at + len >= OWN_PATH_MAX)
        return -ENAMETOOLONG;
    memcpy(dir->path + at, path, len + 1);
    dir->length = at + len;
    return 0;
}

/* Nobody else may put a link in our way, or exchange the file. */
static int check(const char *path)
{
    struct stat st;
    long fd = sys(SYS_openat, AT_FDCWD, path,
                  O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long err;

    if (fd < 0)
        return (int)fd;
    err = sys(SYS_fstat, fd, &st);
    sys(SYS_close, fd);
    if (err)
        return (int)err;
    if (st.st_uid && st.st_uid != (uid_t)sys(SYS_geteuid))
        return -EPERM;
    return st.st_mode & (S_IWGRP | S_IWOTH) && !(st.st_mode & S_ISVTX)
               ? -EPERM
               : 0;
}

int own_dir_open(struct own_dir *dir, const char *path)
{
    int err = make_absolute(dir, path);

    return err ? err : check(dir->path);
}

/* The program's umask may have taken from the mode what we must have. */
static void set_mode(long fd)
{
    struct stat st;

    if (!sys(SYS_fstat, fd, &st) && (st.st_mode & ACCESSPERMS) != OWN_MODE)
        sys(SYS_fchmod, fd, OWN_MODE);
}

static long file_new(struct own_dir *dir, const char *suffix)
{
    for (unsigned n = 0; n < FILES_MAX; n++) {
        char *p = dir->path + dir->length;
        long fd;

        *p++ = '/';
        put_number(&p, (unsigned long)sys(SYS_getpid));
        *p++ = '.';
        put_number(&p, n);
        strcpy(p, suffix);
        fd = sys(SYS_openat, AT_FDCWD, dir->path,
                 O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                 OWN_MODE);
        if (fd == -EEXIST)
            continue;
        if (fd >= 0)
            set_mode(fd);
        return fd;
    }
    return -EEXIST;
}

/* A file above RLIMIT_FSIZE is not just refused: SIGXFSZ ends the program. */
static int may_be_made(uint64_t bytes)
{
    struct rlimit limit;

    return sys(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit) ||
           limit.rlim_cur >= bytes;
}

void own_file_drop(struct own_dir *dir)
{
    sys(SYS_unlink, dir->path);
}

int own_file_map(struct own_dir *dir, const char *suffix, uint64_t bytes,
                 void *at, void **out)
{
    long fd, err, addr = 0;

    if (!may_be_made(bytes))
        return -EFBIG;
    fd = file_new(dir, suffix);
    if (fd < 0)
        return (int)fd;
    err = sys(SYS_ftruncate, fd, bytes);
    if (!err)
        err = addr = sys(SYS_mmap, at, bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_NORESERVE | (at ? MAP_FIXED : 0),
                         fd, 0);
    sys(SYS_close, fd);
    if (err < 0 && err > -4096) {
        own_file_drop(dir);
        return (int)err;
    }
    *out = (void *)addr;
    return 0;
}
