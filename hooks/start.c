/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The constructor: before those of all other objects (-z initfirst), so that
 * what they release is seen. Nothing here may rely on another library's
 * constructor having run, libc's included.
 */
#include "shim/start.h"

#include <gnu/libc-version.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "hooks/backstop.h"
#include "hooks/brk.h"
#include "hooks/caller.h"
#include "hooks/copy.h"
#include "hooks/coverage.h"
#include "hooks/free.h"
#include "hooks/module.h"
#include "hooks/namespace.h"
#include "hooks/segments.h"
#include "hooks/site.h"
#include "hooks/snapshot.h"
#include "shim/config.h"
#include "shim/log.h"
#include "shim/range.h"
#include "shim/report.h"
#include "shim/sys.h"
#include "shim/thread.h"
#include "shim/trace.h"
#include "shim/trace_release.h"

/*
 * A musl program that the library is preloaded into, perhaps for its
 * children's sake, must run. What that C library does not have is declared
 * weak, its absence tells, and nothing is patched: its constructors get no
 * arguments either.
 */
#pragma weak gnu_get_libc_version

/*
 * A program that clang built with -fsanitize=thread has functions of its own in
 * the place of strcmp() and others, which jump to 0 before this was called. Its
 * first constructor does that, and we come earlier; twice does no harm.
 */
extern void __tsan_init(void) __attribute__((weak));

static bool started;

/* Where it counts threads; see shim/thread.c. */
static void find_counter(void)
{
    struct module libc;

    thread_counter(module_find(COVERAGE_LIBC, &libc)
                       ? module_variable(&libc, "__nptl_nthreads")
                       : NULL);
}

static void note_gap(void)
{
    const struct lapse_coverage *gap = coverage_gap();

    if (gap) {
        report_warn("not every release is seen; the first path that is not:");
        report_warn(gap->path);
        report_warn(gap->detail);
    }
}

/* Somebody patched after us. */
static void note_changes(void)
{
    const struct lapse_coverage *row;
    struct lapse_coverage now;

    for (size_t i = 0; (row = coverage_row(i)); i++) {
        now = *row;
        if (!coverage_changed(&now))
            continue;
        report_warn("a path is not as it was at the start:");
        report_warn(now.path);
        report_warn(now.detail);
    }
}

/*
 * The decoder's tables, some 110 KiB, are wanted once: let the kernel take our
 * read-only pages out of the process again, but for those that ld.so reads.
 * They come back from the file when somebody looks at them.
 */
static int forget_tables(struct dl_phdr_info *info, size_t size, void *self)
{
    uintptr_t headers = (uintptr_t)info->dlpi_phdr;

    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];

        if (h->p_type == PT_LOAD &&
            (uintptr_t)self - info->dlpi_addr - h->p_vaddr < h->p_memsz)
            break;
        if (i == info->dlpi_phnum - 1)
            return 0; /* not us */
    }
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        uintptr_t start = page_up(info->dlpi_addr + h->p_vaddr);
        uintptr_t end = page_down(info->dlpi_addr + h->p_vaddr + h->p_filesz);

        if (h->p_type == PT_LOAD && h->p_flags == PF_R && end > start &&
            (headers < info->dlpi_addr + h->p_vaddr || headers >= end))
            sys(SYS_madvise, start, end - start, MADV_DONTNEED);
    }
    return 1;
}

/* The name of the program lies at the upper end of the first stack. */
static void stacks_start(void)
{
    if (!lapse_trace.stack_bytes)
        return;
    lapse_snapshot = snapshot_take;
    if (sys(SYS_gettid) == sys(SYS_getpid))
        snapshot_start(getauxval(AT_EXECFN),
                       (uintptr_t)__builtin_thread_pointer());
}

/*
 * The last thing done: to `lapse audit` this call is the sign that all has been
 * patched that will be, and that from here on what is not seen is a finding.
 */
static void tell_audit(void)
{
    dl_iterate_phdr(forget_tables, (void *)(uintptr_t)tell_audit);
}

__attribute__((constructor)) static void start(int argc, char **argv,
                                               char **environment)
{
    (void)argc;
    (void)argv;
    if (!gnu_get_libc_version) {
        log_warn("this program's C library is not glibc: no release of "
                 "memory is seen in it");
        tell_audit();
        return;
    }
    if (__tsan_init)
        __tsan_init();
    if (copy_stands_back())
        return;
    started = true;
    shim_start(environment);
    find_counter();
    caller_start(lapse_observing != 0);
    stacks_start();
    atomic_store_explicit(&hook_brk, (uintptr_t)sys(SYS_brk, 0),
                          memory_order_relaxed);
    report_modules();
    sites_patch();
    free_patch();
    segments_start(namespaces_told());
    if (lapse_config.backstop)
        backstop_start();
    note_gap();
    tell_audit();
    report_started();
}

__attribute__((destructor)) static void stop(void)
{
    if (!started)
        return;
    report_modules();
    if (observing(OBSERVE_REPORT))
        note_changes();
    report_refresh();
    segments_stop();
    trace_stop();
}
