/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files of ours in a directory that the environment names: a new one a
 * process, told apart by a number where an exec keeps the pid.
 */
#ifndef LAPSE_OWN_FILE_H
#define LAPSE_OWN_FILE_H

#include <stddef.h>
#include <stdint.h>

#define OWN_PATH_MAX 4096
#define OWN_NAME_MAX 64

/* Names are made in here, as a handler that forks may have little stack. So
 * not for two threads at once. */
struct own_dir {
    size_t length;
    char path[OWN_PATH_MAX + OWN_NAME_MAX]; /* absolute; then a name */
};

/*
 * Remember a directory. Returns 0 or -errno: -ENAMETOOLONG, -ENOTDIR, -EPERM
 * (it belongs to somebody else than us or root, or others may write to it and
 * take files away).
 */
int own_dir_open(struct own_dir *dir, const char *path);

/*
 * A new file DIR/PID.N and suffix, mode 0600, of that many bytes, all zero and
 * without disk blocks, mapped shared for writing; over `at` if that is not
 * NULL. Returns 0 or -errno. No descriptor is left. For who is alone: the
 * constructor, or a child after fork, be it in a signal handler.
 */
int own_file_map(struct own_dir *dir, const char *suffix, uint64_t bytes,
                 void *at, void **out);
/* The last one is of no use: take its name away. */
void own_file_drop(struct own_dir *dir);

#endif
