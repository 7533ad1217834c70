/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of all ways out, and what rows share. */
#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "check_file.h"
#include "check_kernel.h"
#include "check_loader.h"
#include "check_malloc.h"
#include "check_memory.h"
#include "check_shm.h"

#define LIBC "libc.so"
#define LOADER "ld-linux"
#define ANY NULL
#define INLINE "inline system calls"
#define MALLOC NULL, NULL, ROW_ALLOCATOR

const struct check_row check_rows[] = {
    {"munmap", "munmap", LIBC, 0, anonymous_setup, munmap_release, NULL},
    {"mmap MAP_FIXED", "mmap", LIBC, 0, anonymous_setup, mmap_fixed_release,
     NULL},
    {"mmap MAP_FIXED_NOREPLACE that fails", "mmap", LIBC, ROW_KEEPS,
     anonymous_setup, mmap_noreplace_release, NULL},
    {"mremap, moved to a given place", "mremap", LIBC, 0, mremap_setup,
     mremap_fixed_release, NULL},
    {"mremap, moved to grow", "mremap", LIBC, 0, mremap_grow_setup,
     mremap_grow_release, NULL},
    {"mremap, tail cut off", "mremap", LIBC, 0, mremap_setup,
     mremap_shrink_release, NULL},
    {"mremap DONTUNMAP", "mremap", LIBC, 0, mremap_setup,
     mremap_dontunmap_release, NULL},
    {"mremap FIXED, what was there", "mremap", LIBC, 0, mremap_target_setup,
     mremap_target_release, NULL},
    {"brk", "brk", LIBC, 0, brk_setup, brk_release, brk_give_back},
    {"sbrk", "brk", LIBC, 0, brk_setup, sbrk_release, brk_give_back},
    {"madvise DONTNEED", "madvise", LIBC, 0, anonymous_setup,
     dontneed_release, NULL},
    {"madvise DONTNEED over a hole (ENOMEM)", "madvise", LIBC, 0,
     anonymous_setup, partial_release, NULL},
    {"madvise DONTNEED_LOCKED", "madvise", LIBC, 0, locked_setup,
     locked_release, NULL},
    {"madvise REMOVE", "madvise", LIBC, 0, shared_setup, remove_release, NULL},
    {"madvise REMOVE of another mapping", "madvise", LIBC, 0,
     remove_other_setup, remove_other_release, NULL},
    {"madvise FREE", "madvise", LIBC, ROW_MAY_KEEP, anonymous_setup,
     lazyfree_release, NULL},
    {"madvise GUARD_INSTALL", "madvise", LIBC, 0, anonymous_setup,
     guard_release, guard_give_back},
    {"posix_madvise DONTNEED", "madvise", LIBC, ROW_KEEPS, anonymous_setup,
     posix_madvise_release, NULL},
    {"process_madvise of itself", "process_madvise", LIBC, 0,
     process_madvise_setup, process_madvise_release, NULL},
    {"remap_file_pages", "remap_file_pages", LIBC, 0, shared_setup,
     remap_file_release, NULL},
    {"syscall(SYS_munmap)", "syscall", LIBC, 0, anonymous_setup,
     munmap_syscall_release, NULL},
    {"syscall(SYS_mmap) MAP_FIXED", "syscall", LIBC, 0, anonymous_setup,
     mmap_syscall_release, NULL},
    {"syscall(SYS_madvise) DONTNEED", "syscall", LIBC, 0, anonymous_setup,
     dontneed_syscall_release, NULL},

    {"shmdt", "shmdt", LIBC, 0, shmdt_setup, shmdt_release, NULL},
    {"shmat SHM_REMAP", "shmat", LIBC, 0, shm_remap_setup, shm_remap_release,
     NULL},
    {"shmat SHM_REMAP, part of a page", "shmat", LIBC, 0, shm_odd_setup,
     shm_remap_release, NULL},
    {"shmat SHM_REMAP | SHM_RND", "shmat", LIBC, 0, shm_remap_setup,
     shm_round_release, NULL},

    {"fallocate PUNCH_HOLE", "fallocate", ANY, 0, shared_setup, punch_release,
     NULL},
    {"fallocate PUNCH_HOLE, another fd", "fallocate", ANY, 0,
     file_two_fds_setup, punch_other_release, NULL},
    {"fallocate COLLAPSE_RANGE", "fallocate", ANY, 0, file_on_disk_setup,
     collapse_release, file_give_back},
    {"fallocate ZERO_RANGE", "fallocate", ANY, 0, file_on_disk_setup,
     zero_release, NULL},
    {"ftruncate", "ftruncate", ANY, 0, shared_setup, ftruncate_release,
     file_give_back},
    {"ftruncate, another fd", "ftruncate", ANY, 0, file_two_fds_setup,
     ftruncate_other_release, file_give_back},
    {"syscall(SYS_ftruncate)", "syscall", LIBC, 0, shared_setup,
     ftruncate_syscall_release, file_give_back},
    {"truncate", "truncate", ANY, 0, shared_setup, truncate_release,
     file_give_back},
    {"open O_TRUNC", "open", ANY, 0, shared_setup, open_release,
     file_give_back},

    {"dlclose", "munmap", LOADER, 0, dlclose_setup, dlclose_release,
     dlclose_give_back},
    {"munmap by a library, RTLD_DEEPBIND", "munmap", LIBC, 0, deepbind_setup,
     plugin_release, NULL},
    {"munmap by a library, dlmopen", "dlmopen", ANY, 0, dlmopen_setup,
     plugin_release, NULL},

    {"free of a large block", MALLOC, free_setup, free_release, NULL},
    {"free of a large aligned block", MALLOC, aligned_setup, free_release,
     NULL},
    {"free at the top of the heap", MALLOC, heap_top_setup, heap_top_release,
     NULL},
    {"free in the heap of a thread", MALLOC, arena_setup, thread_release,
     NULL},
    {"free of many, and all given back", MALLOC, many_setup, many_release,
     NULL},
    {"realloc that moves", MALLOC, free_setup, realloc_release, NULL},
    {"realloc that shrinks", MALLOC, realloc_shrink_setup,
     realloc_shrink_release, NULL},
    {"malloc_trim", MALLOC, malloc_trim_setup, malloc_trim_release, NULL},
    {"stack of a thread, kept for the next", "madvise", LIBC, 0,
     thread_stack_setup, thread_release, NULL},
    {"stack of a thread, unmapped", "munmap", LIBC, 0, thread_big_stack_setup,
     thread_release, NULL},
    {"free, by the byte", "free", ANY, ROW_FREE, free_exact_setup,
     free_release, NULL},

    {"munmap, inline", INLINE, "any code", 0, anonymous_setup,
     inline_munmap_release, NULL},
    {"mmap MAP_FIXED, inline", INLINE, "any code", 0, anonymous_setup,
     inline_mmap_release, NULL},
    {"mremap, inline", INLINE, "any code", 0, mremap_setup,
     inline_mremap_release, NULL},
    {"madvise DONTNEED, inline", INLINE, "any code", 0, anonymous_setup,
     inline_madvise_release, NULL},
    {"io_uring MADVISE", "io_uring", "the kernel", 0, uring_anonymous_setup,
     uring_madvise_release, NULL},
    {"shmdt, inline", INLINE, "what has no event", 0, shmdt_setup,
     inline_shmdt_release, NULL},
    {"fallocate PUNCH_HOLE, inline", INLINE, "what has no event", 0,
     shared_setup, inline_punch_release, NULL},
    {"io_uring FALLOCATE", "io_uring", "files", 0, uring_shared_setup,
     uring_fallocate_release, NULL},
    {"ioctl FS_IOC_UNRESVSP", "ioctl", "files", 0, shared_setup,
     punch_ioctl_release, NULL},
};
const unsigned check_row_count = sizeof(check_rows) / sizeof(check_rows[0]);

bool cannot(struct scene *s, const char *what)
{
    if (errno)
        snprintf(s->why, sizeof(s->why), "%s: %s", what, strerror(errno));
    else
        snprintf(s->why, sizeof(s->why), "%s", what);
    return false;
}

bool done(struct scene *s, bool succeeded, const char *what)
{
    return succeeded || cannot(s, what);
}

void release_names(struct scene *s, void *addr, size_t len)
{
    s->named = addr;
    s->named_len = len;
}

void *check_symbol(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

void give_back_by_mmap(struct scene *s)
{
    uint64_t mapped = oracle_mapped(s->addr, CHECK_PAGES);

    for (unsigned i = 0; i < CHECK_PAGES; i++)
        if (!(mapped >> i & 1))
            mmap(page_of(s, i), PAGE_BYTES, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

void check_give_back(const struct check_row *row, struct scene *s)
{
    if (row->give_back)
        row->give_back(s);
    else
        give_back_by_mmap(s);
}
