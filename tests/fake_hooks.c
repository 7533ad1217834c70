/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fake_hooks.h"

#include <sys/syscall.h>

#include "hooks/segments.h"
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

unsigned long fake_count(int index)
{
    return __atomic_load_n(&fake_calls[index], __ATOMIC_RELAXED);
}

/* relaxed: a count, read after the threads that made it were joined */
#define BODY(call, index)                                                   \
    static long body_##call(long a0, long a1, long a2, long a3, long a4,    \
                            long a5, const uintptr_t *stack)                \
    {                                                                       \
        (void)stack;                                                        \
        __atomic_fetch_add(&fake_calls[index], 1, __ATOMIC_RELAXED);        \
        return sys(SYS_##call, a0, a1, a2, a3, a4, a5);                     \
    }
#define ROW(call, index, path) [index] = {#call, SYS_##call, path, body_##call}

BODY(munmap, LAPSE_PATH_MUNMAP)
BODY(mmap, LAPSE_PATH_MMAP)
BODY(mremap, LAPSE_PATH_MREMAP)
BODY(brk, LAPSE_PATH_BRK)
BODY(madvise, LAPSE_PATH_MADVISE)
BODY(shmdt, LAPSE_PATH_SHMDT)
BODY(shmat, LAPSE_PATH_SHMAT)
BODY(process_madvise, LAPSE_PATH_PROCESS_MADVISE)
BODY(remap_file_pages, LAPSE_PATH_REMAP_FILE_PAGES)
BODY(fallocate, LAPSE_PATH_FALLOCATE)
BODY(ftruncate, LAPSE_PATH_FTRUNCATE)
BODY(truncate, LAPSE_PATH_TRUNCATE)
BODY(open, HOOK_OPEN)
BODY(openat, HOOK_OPENAT)
BODY(creat, HOOK_CREAT)
BODY(openat2, HOOK_OPENAT2)

#define OF_ITSELF(call, index) ROW(call, index, index)
const struct hook lapse_hooks[HOOK_COUNT] = {
    OF_ITSELF(munmap, LAPSE_PATH_MUNMAP),
    OF_ITSELF(mmap, LAPSE_PATH_MMAP),
    OF_ITSELF(mremap, LAPSE_PATH_MREMAP),
    OF_ITSELF(brk, LAPSE_PATH_BRK),
    OF_ITSELF(madvise, LAPSE_PATH_MADVISE),
    OF_ITSELF(shmdt, LAPSE_PATH_SHMDT),
    OF_ITSELF(shmat, LAPSE_PATH_SHMAT),
    OF_ITSELF(process_madvise, LAPSE_PATH_PROCESS_MADVISE),
    OF_ITSELF(remap_file_pages, LAPSE_PATH_REMAP_FILE_PAGES),
    OF_ITSELF(fallocate, LAPSE_PATH_FALLOCATE),
    OF_ITSELF(ftruncate, LAPSE_PATH_FTRUNCATE),
    OF_ITSELF(truncate, LAPSE_PATH_TRUNCATE),
    ROW(open, HOOK_OPEN, LAPSE_PATH_OPEN),
    ROW(openat, HOOK_OPENAT, LAPSE_PATH_OPEN),
    ROW(creat, HOOK_CREAT, LAPSE_PATH_OPEN),
    ROW(openat2, HOOK_OPENAT2, LAPSE_PATH_OPEN),
};

void segments_changed(bool at_rest)
{
    (void)at_rest;
}
