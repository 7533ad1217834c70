/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library whose constructor and destructor release memory, for dlopens.c.
 * Loaded anew, its data must be what the file says.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096ul

char lib_release_bss[64 * PAGE]; /* unmapped by the loader at dlclose */
int lib_release_state = 41;
static char *kept;

/* The caller's page is unmapped by the destructor. */
void lib_release_take(char *page);
void lib_release_take(char *page)
{
    kept = page;
}

static void release(void)
{
    char *p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *q = malloc(500000);

    if (p == MAP_FAILED || !q)
        abort();
    p[0] = q[0] = 1;
    __asm__ volatile("" : "+r"(q)); /* or malloc and free are taken out */
    if (madvise(p, PAGE, MADV_DONTNEED) || p[0])
        abort();
    free(q);
    if (munmap(p, 4 * PAGE))
        abort();
}

__attribute__((constructor)) static void begin(void)
{
    release();
    lib_release_state++;
    for (size_t i = 0; i < sizeof lib_release_bss; i += PAGE)
        if (lib_release_bss[i]++)
            lib_release_state = -1;
}

__attribute__((destructor)) static void end(void)
{
    release();
    if (kept)
        munmap(kept, PAGE);
}
