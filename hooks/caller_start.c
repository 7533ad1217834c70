/* SPDX-License-Identifier: BSD-3-Clause */
/* Learning where allocators and loader are; see caller.h. */
#include <string.h>
#include <sys/mman.h>

#include "hooks/caller.h"
#include "hooks/caller_ranges.h"
#include "hooks/coverage.h"
#include "hooks/module.h"

/* What a program may have preloaded or linked instead of libc's malloc. */
static const char *const allocators[] = {
    "libjemalloc.so.2",         "libtcmalloc.so.4", "libtcmalloc_minimal.so.4",
    "libmimalloc.so.2",         "libtbbmalloc.so.2",
    "libtbbmalloc_proxy.so.2",
};

/* Functions of libc that share one translation unit with malloc's insides. */
static const char *const of_malloc[] = {
    "malloc",      "free",         "realloc", "calloc",      "memalign",
    "malloc_trim", "malloc_stats", "mallopt", "malloc_info", "posix_memalign",
};

static struct text_range text_of(const struct module *m)
{
    return (struct text_range){(uintptr_t)m->text,
                               (uintptr_t)m->text + m->text_size};
}

static void add_allocator(struct text_range r)
{
    if (caller_ranges.allocators < ALLOCATORS_MAX)
        caller_ranges.allocator[caller_ranges.allocators++] = r;
}

/*
 * malloc.o as the linker laid it out: from the end of the exported function
 * before its first exported one (static functions come first) to the end of
 * its last. dladdr-like, over libc's whole symbol table.
 */
static void add_libc_malloc(const struct module *libc)
{
    struct text_range r = {UINTPTR_MAX, 0};
    uintptr_t before = (uintptr_t)libc->text;
    uint32_t count = module_symbols(libc);
    size_t size;

    for (unsigned i = 0; i < sizeof(of_malloc) / sizeof(*of_malloc); i++) {
        uintptr_t at =
            (uintptr_t)module_function(libc, of_malloc[i], &size);

        if (at && at < r.start)
            r.start = at;
        if (at && at + size > r.end)
            r.end = at + size;
    }
    for (uint32_t i = 1; i < count && r.end; i++) {
        const ElfW(Sym) *s = &libc->symbols[i];
        uintptr_t end = (uintptr_t)libc->base + s->st_value + s->st_size;

        if (ELF64_ST_TYPE(s->st_info) == STT_FUNC && s->st_shndx &&
            end <= r.start && end > before)
            before = end;
    }
    if (!r.end)
        return;
    r.start = before;
    add_allocator(r);
}

/* Bytes of `sub $n,%rsp` before the site, as words. */
static unsigned frame_of(const struct module *libc, const char *name)
{
    size_t size;
    const uint8_t *p = module_function(libc, name, &size);

    for (size_t i = 0; p && i + 4 < size && i < 64; i++)
        if (p[i] == 0x48 && p[i + 1] == 0x83 && p[i + 2] == 0xec)
            return p[i + 3] / sizeof(uintptr_t);
    return 0;
}

void caller_start(bool inside)
{
    struct module m;

    if (module_find(COVERAGE_LOADER, &m))
        caller_ranges.loader = text_of(&m);
    if (module_find(COVERAGE_LIBC, &m)) {
        caller_ranges.libc = text_of(&m);
        caller_ranges.frame[LAPSE_PATH_MREMAP] = frame_of(&m, "mremap");
        if (inside)
            add_libc_malloc(&m);
    }
    if (!inside)
        return;
    for (unsigned i = 0; i < sizeof(allocators) / sizeof(*allocators); i++)
        if (module_find(allocators[i], &m))
            add_allocator(text_of(&m));
}
