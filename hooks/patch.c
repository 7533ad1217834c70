/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writing instruction bytes, in one of two ways.
 *
 * In place, through /proc/self/mem, while there is no other thread. The
 * mapping stays what it was, and no page is ever writable for it.
 *
 * With threads running that will not do. The write is a copy in the kernel, in
 * whatever order its memcpy likes (tests see it torn), so not even the two
 * bytes of a jump to itself are sure to appear at once, and a torn one enters
 * the kernel with a wrong number. A one-byte int3 is atomic, but kills a
 * thread that has SIGTRAP blocked, as glibc itself has while it ends threads;
 * and a child forked in between would keep a text that nobody finishes, and
 * wait in it for ever. So we exchange the page: patch a private copy of it that
 * nobody runs yet, then mremap() it over the text. That happens under the
 * kernel's mmap lock: another thread runs the old page until the kernel has
 * flushed it from its core's TLB, or faults, waits for the lock, and goes on
 * in the new one, same bytes but for the window. No thread is held, no signal
 * handler is needed, nothing can be seen half done, also not by fork.
 * Exchanging is also what is left where /proc/self/mem cannot be written.
 */
#include "hooks/patch.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "shim/sys.h"

#pragma weak __libc_single_threaded /* for start.c: another C library */

#define PAGE ((uintptr_t)4096)
#define NEAR_PAGES 4
#define NEAR_STEP ((uintptr_t)1 << 21)
#define NEAR_REACH ((uintptr_t)1 << 30)

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static bool failed(long result)
{
    return (unsigned long)result >= (unsigned long)-4095L;
}

/*
 * Threads of this process, by the kernel's count: libc's knows nothing of
 * those made with clone().
 */
static bool is_alone(void)
{
    struct stat tasks;

    if (sys(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &tasks, 0))
        return __libc_single_threaded;
    return tasks.st_nlink == 2 + 1;
}

void patcher_open(struct patcher *patcher)
{
    patcher->memory = (int)sys(SYS_openat, AT_FDCWD, "/proc/self/mem",
                               O_RDWR | O_CLOEXEC);
    patcher->alone = is_alone();
}

void patcher_close(struct patcher *patcher)
{
    if (patcher->memory >= 0)
        sys(SYS_close, patcher->memory);
    arch_sync_core();
}

static bool write_memory(const struct patcher *patcher, uint8_t *at,
                         const uint8_t *bytes, size_t size)
{
    return patcher->memory >= 0 &&
           sys(SYS_pwrite64, patcher->memory, bytes, size, at) == (long)size;
}

/* What an exchange is about: one page, or two if the window crosses. */
struct span {
    uint8_t *start;
    size_t size;
    size_t offset; /* of the window in it */
};

static struct span span_of(uint8_t *at)
{
    uintptr_t start = (uintptr_t)at & ~(PAGE - 1);
    uintptr_t end = ((uintptr_t)at + ARCH_WINDOW + PAGE - 1) & ~(PAGE - 1);

    return (struct span){(uint8_t *)start, end - start,
                         (uintptr_t)at - start};
}

/*
 * A copy that is mapped from the library's own file, so that maps of the
 * process, profilers and kernel probes see what they saw before. What runs may
 * differ from the file: patched by us, by a debugger, or replaced on disk.
 */
static uint8_t *copy_of_file(const struct patcher *patcher,
                             const struct module *module, struct span span,
                             const uint8_t fresh[ARCH_WINDOW])
{
    uint64_t offset = module->text_offset + (uint64_t)(span.start -
                                                       module->text);
    long file = sys(SYS_openat, AT_FDCWD, module->path, O_RDONLY | O_CLOEXEC);
    long copy;

    if (failed(file))
        return NULL;
    copy = sys(SYS_mmap, 0, span.size, PROT_READ | PROT_EXEC, MAP_PRIVATE,
               file, offset);
    sys(SYS_close, file);
    if (failed(copy))
        return NULL;
    if ((!memcmp((void *)copy, span.start, span.size) ||
         write_memory(patcher, (uint8_t *)copy, span.start, span.size)) &&
        write_memory(patcher, (uint8_t *)copy + span.offset, fresh,
                     ARCH_WINDOW))
        return (uint8_t *)copy;
    sys(SYS_munmap, copy, span.size);
    return NULL;
}

static uint8_t *copy_of_memory(struct span span,
                               const uint8_t fresh[ARCH_WINDOW])
{
    long copy = sys(SYS_mmap, 0, span.size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (failed(copy))
        return NULL;
    memcpy((void *)copy, span.start, span.size);
    memcpy((uint8_t *)copy + span.offset, fresh, ARCH_WINDOW);
    if (!sys(SYS_mprotect, copy, span.size, PROT_READ | PROT_EXEC))
        return (uint8_t *)copy;
    sys(SYS_munmap, copy, span.size);
    return NULL;
}

static const char *exchange(const struct patcher *patcher,
                            const struct module *module, uint8_t *at,
                            const uint8_t fresh[ARCH_WINDOW])
{
    struct span span = span_of(at);
    uint8_t *copy = copy_of_file(patcher, module, span, fresh);

    if (!copy)
        copy = copy_of_memory(span, fresh);
    if (!copy)
        return "its text cannot be changed: neither /proc/self/mem nor "
               "mprotect may";
    if (sys(SYS_mremap, copy, span.size, span.size,
            MREMAP_MAYMOVE | MREMAP_FIXED, span.start) == (long)span.start)
        return NULL;
    sys(SYS_munmap, copy, span.size);
    return "its text cannot be changed: the kernel keeps it mapped";
}

const char *patch_window(const struct patcher *patcher,
                         const struct module *module, uint8_t *at,
                         const uint8_t old[ARCH_WINDOW],
                         const uint8_t fresh[ARCH_WINDOW])
{
    const char *reason = NULL;

    if (memcmp(at, old, ARCH_WINDOW))
        return "its instruction is not the one expected";
    /* A write that crosses a page could end half-way, for good. */
    if (!patcher->alone || span_of(at).size > PAGE ||
        !write_memory(patcher, at, fresh, ARCH_WINDOW))
        reason = exchange(patcher, module, at, fresh);
    if (!reason && memcmp(at, fresh, ARCH_WINDOW))
        return "its instruction did not change as told";
    return reason;
}

/* Stubs to all entries, on a page that is made when one is first needed. */
static uint8_t *near_pages[NEAR_PAGES];

#define OTHER ARCH_SLOTS /* the stub of near_code() */
#define STUBS (ARCH_SLOTS + 1)
static uintptr_t near_other;

_Static_assert(STUBS * ARCH_STUB <= 4096, "stubs fit on their page");

static uint8_t *map_near(uintptr_t site, uintptr_t at)
{
    long page = sys(SYS_mmap, at, PAGE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

    if (failed(page))
        return NULL;
    /* An old kernel takes the address for a hint, and may be far off. */
    if (arch_reaches(site, (uintptr_t)page))
        return (uint8_t *)page;
    sys(SYS_munmap, page, PAGE);
    return NULL;
}

uint8_t *near_map(uintptr_t site)
{
    uintptr_t base = site & ~(NEAR_STEP - 1);
    uint8_t *page = NULL;

    for (uintptr_t away = NEAR_STEP; !page && away < NEAR_REACH;
         away += NEAR_STEP) {
        if (base > away)
            page = map_near(site, base - away);
        if (!page)
            page = map_near(site, base + away);
    }
    return page;
}

bool near_seal(uint8_t *page)
{
    if (!sys(SYS_mprotect, page, PAGE, PROT_READ | PROT_EXEC))
        return true;
    sys(SYS_munmap, page, PAGE);
    return false;
}

static uint8_t *make_near_page(uintptr_t site)
{
    uint8_t *page = near_map(site);

    if (!page)
        return NULL;
    for (int slot = 0; slot < ARCH_SLOTS; slot++)
        arch_stub(page + slot * ARCH_STUB, arch_entry(slot));
    arch_stub(page + OTHER * ARCH_STUB, near_other);
    return near_seal(page) ? page : NULL;
}

/* The first page that reaches from there, whatever its stubs lead to. */
static uint8_t *near_page(uintptr_t site)
{
    for (int i = 0; i < NEAR_PAGES; i++) {
        if (!near_pages[i])
            near_pages[i] = make_near_page(site);
        if (!near_pages[i])
            return NULL;
        if (arch_reaches(site, (uintptr_t)near_pages[i]) &&
            arch_reaches(site, (uintptr_t)near_pages[i] + PAGE))
            return near_pages[i];
    }
    return NULL;
}

uintptr_t near_stub(uintptr_t site, int slot)
{
    uint8_t *page = near_page(site);

    return page ? (uintptr_t)page + (uintptr_t)slot * ARCH_STUB : 0;
}

uintptr_t near_entry(uintptr_t site, int slot)
{
    uintptr_t entry = arch_entry(slot);

    return arch_reaches(site, entry) ? entry : near_stub(site, slot);
}

/* On a page of its own, if others were made before it was known. */
uintptr_t near_code(uintptr_t site, uintptr_t to)
{
    int i = 0;

    if (arch_reaches(site, to))
        return to;
    near_other = to;
    while (i < NEAR_PAGES && near_pages[i])
        i++;
    if (i == NEAR_PAGES || !(near_pages[i] = make_near_page(site)))
        return 0;
    return (uintptr_t)near_pages[i] + OTHER * ARCH_STUB;
}
