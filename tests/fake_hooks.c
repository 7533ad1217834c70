/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fake_hooks.h"

#include <sys/syscall.h>

#include "shim/sys.h"

static unsigned long fake_calls[HOOK_COUNT];
long fake_args[6];
const uintptr_t *fake_stack;
long fake_result;

long fake_body(long a0, long a1, long a2, long a3, long a4, long a5,
               const uintptr_t *stack)
{
    long args[] = {a0, a1, a2, a3, a4, a5};

    for (int i = 0; i < 6; i++)
        fake_args[i] = args[i];
    fake_stack = stack;
    return fake_result;
}

unsigned long fake_count(int path)
{
    return __atomic_load_n(&fake_calls[path], __ATOMIC_RELAXED);
}

/* relaxed: a count, read after the threads that made it were joined */
#define BODY(call, path)                                                    \
    static long body_##call(long a0, long a1, long a2, long a3, long a4,    \
                            long a5, const uintptr_t *stack)                \
    {                                                                       \
        (void)stack;                                                        \
        __atomic_fetch_add(&fake_calls[path], 1, __ATOMIC_RELAXED);         \
        return sys(SYS_##call, a0, a1, a2, a3, a4, a5);                     \
    }
#define ROW(call, path) [path] = {#call, SYS_##call, body_##call}

BODY(munmap, LAPSE_PATH_MUNMAP)
BODY(mmap, LAPSE_PATH_MMAP)
BODY(mremap, LAPSE_PATH_MREMAP)
BODY(brk, LAPSE_PATH_BRK)
BODY(madvise, LAPSE_PATH_MADVISE)
BODY(shmdt, LAPSE_PATH_SHMDT)
BODY(shmat, LAPSE_PATH_SHMAT)
BODY(process_madvise, LAPSE_PATH_PROCESS_MADVISE)
BODY(remap_file_pages, LAPSE_PATH_REMAP_FILE_PAGES)

const struct hook lapse_hooks[HOOK_COUNT] = {
    ROW(munmap, LAPSE_PATH_MUNMAP),
    ROW(mmap, LAPSE_PATH_MMAP),
    ROW(mremap, LAPSE_PATH_MREMAP),
    ROW(brk, LAPSE_PATH_BRK),
    ROW(madvise, LAPSE_PATH_MADVISE),
    ROW(shmdt, LAPSE_PATH_SHMDT),
    ROW(shmat, LAPSE_PATH_SHMAT),
    ROW(process_madvise, LAPSE_PATH_PROCESS_MADVISE),
    ROW(remap_file_pages, LAPSE_PATH_REMAP_FILE_PAGES),
};
