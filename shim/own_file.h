/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files of ours in a directory that the environment names: a new one a
 * process, told apart by a number where an exec keeps the pid.
 */
#ifndef LAPSE_OWN_FILE_H
#define LAPSE_OWN_FILE_H

#include <stdint.h>

struct own_dir {
    char path[4096]; /* absolute */
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
int own_file_map(const struct own_dir *dir, const char *suffix, uint64_t bytes,
                 void *at, void **out);

#endif
