/* SPDX-License-Identifier: BSD-3-Clause */
/* An interposer of the symbol kind: preloaded, counts, calls the next one. */
#include <dlfcn.h>
#include <stddef.h>

unsigned long lib_plt_calls;

int munmap(void *p, size_t len);
int munmap(void *p, size_t len)
{
    static int (*next)(void *, size_t);

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "munmap");
    __atomic_fetch_add(&lib_plt_calls, 1, __ATOMIC_RELAXED);
    return next(p, len);
}
