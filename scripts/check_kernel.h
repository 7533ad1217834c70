/* SPDX-License-Identifier: BSD-3-Clause */
/* The rows of check_kernel.c. */
#ifndef CHECK_KERNEL_H
#define CHECK_KERNEL_H

#include "check.h"

bool inline_munmap_release(struct scene *s);
bool inline_madvise_release(struct scene *s);
bool inline_mmap_release(struct scene *s);
bool inline_mremap_release(struct scene *s);
bool inline_shmdt_release(struct scene *s);
bool inline_punch_release(struct scene *s);
bool uring_anonymous_setup(struct scene *s);
bool uring_shared_setup(struct scene *s);
bool uring_madvise_release(struct scene *s);
bool uring_fallocate_release(struct scene *s);

#endif
