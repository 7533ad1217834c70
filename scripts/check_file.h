/* SPDX-License-Identifier: BSD-3-Clause */
/* The rows of check_file.c. */
#ifndef CHECK_FILE_H
#define CHECK_FILE_H

#include "check.h"

bool file_two_fds_setup(struct scene *s);
bool file_on_disk_setup(struct scene *s);
bool punch_release(struct scene *s);
bool punch_other_release(struct scene *s);
bool punch_ioctl_release(struct scene *s);
bool collapse_release(struct scene *s);
bool zero_release(struct scene *s);
bool ftruncate_release(struct scene *s);
bool ftruncate_other_release(struct scene *s);
bool ftruncate_syscall_release(struct scene *s);
bool truncate_release(struct scene *s);
bool open_release(struct scene *s);
void file_give_back(struct scene *s);

#endif
