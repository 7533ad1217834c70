/* SPDX-License-Identifier: BSD-3-Clause */
/* The rows of check_memory.c. */
#ifndef CHECK_MEMORY_H
#define CHECK_MEMORY_H

#include "check.h"

bool anonymous_setup(struct scene *s);
bool shared_setup(struct scene *s);
bool munmap_release(struct scene *s);
bool munmap_syscall_release(struct scene *s);
bool mmap_fixed_release(struct scene *s);
bool mmap_syscall_release(struct scene *s);
bool mmap_noreplace_release(struct scene *s);
bool mremap_setup(struct scene *s);
bool mremap_fixed_release(struct scene *s);
bool mremap_grow_setup(struct scene *s);
bool mremap_grow_release(struct scene *s);
bool mremap_shrink_release(struct scene *s);
bool mremap_dontunmap_release(struct scene *s);
bool mremap_target_setup(struct scene *s);
bool mremap_target_release(struct scene *s);
bool brk_setup(struct scene *s);
bool brk_release(struct scene *s);
bool sbrk_release(struct scene *s);
void brk_give_back(struct scene *s);
bool dontneed_release(struct scene *s);
bool dontneed_syscall_release(struct scene *s);
bool locked_setup(struct scene *s);
bool locked_release(struct scene *s);
bool remove_release(struct scene *s);
bool remove_other_setup(struct scene *s);
bool remove_other_release(struct scene *s);
bool lazyfree_release(struct scene *s);
bool guard_release(struct scene *s);
void guard_give_back(struct scene *s);
bool partial_release(struct scene *s);
bool posix_madvise_release(struct scene *s);
bool process_madvise_setup(struct scene *s);
bool process_madvise_release(struct scene *s);
bool remap_file_release(struct scene *s);

#endif
