/* SPDX-License-Identifier: BSD-3-Clause */
#include "report.h"

#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "inflight.h"
#include "log.h"
#include "own_file.h"
#include "subscriber.h"

static struct report in_memory;
struct report *lapse_report = &in_memory;

static struct own_dir directory;

/* Marks for who compares with strace: what lies between is ours. */
#define MARK_BEGIN 0x4c42
#define MARK_END 0x4c41

static void mark(int which)
{
    sys(SYS_madvise, 0, 0, which);
}

/* Map a new file, over `at` if that is given. Returns it or NULL. */
static struct report *map_new(void *at, int *err)
{
    struct report *r;
    void *map;

    *err = own_file_map(&directory, "", sizeof(*r), at, &map);
    if (*err)
        return NULL;
    r = map;
    r->pid = (uint32_t)sys(SYS_getpid);
    r->ppid = (uint32_t)sys(SYS_getppid);
    sys(SYS_prctl, PR_GET_NAME, r->name);
    r->tallies_used = REPORT_TALLIES;
    r->in_flight_high = 1;
    r->magic = REPORT_MAGIC;
    return r;
}

void report_start(const char *dir)
{
    struct report *r = NULL;
    int err = own_dir_open(&directory, dir);

    if (!err)
        r = map_new(NULL, &err);
    if (r) {
        lapse_report = r;
        lapse_observing |= OBSERVE_REPORT;
        return;
    }
    log_warn("LAPSE_REPORT=%s: no report file there (error %d); this process "
             "is not reported",
             dir, -err);
}

void report_started(void)
{
    if (observing(OBSERVE_REPORT))
        mark(MARK_END);
}

static int add_module(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct report *r = lapse_report;
    const char *name = info->dlpi_name;
    uintptr_t end = 0;
    /* asked at the start: at the end the program may have confined itself */
    static char exe[512];
    int n;

    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD &&
            info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz > end)
            end = info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
    if (!name[0]) {
        long len;

        if ((*(int *)arg)++) /* the vdso has no name either */
            return 0;
        if (!exe[0]) {
            len = sys(SYS_readlink, "/proc/self/exe", exe, sizeof(exe) - 1);
            exe[len > 0 ? len : 0] = 0;
        }
        name = exe;
    }
    n = snprintf(r->modules + r->modules_len, REPORT_TEXT - r->modules_len,
                 "%lx %lx %s\n", (unsigned long)info->dlpi_addr,
                 (unsigned long)(info->dlpi_addr + end), name);
    if (n < 0 || r->modules_len + (size_t)n >= REPORT_TEXT)
        return 1; /* full: callers in the others stay nameless */
    r->modules_len += (size_t)n;
    return 0;
}

void report_modules(void)
{
    int nameless = 0;

    if (!observing(OBSERVE_REPORT))
        return;
    lapse_report->modules_len = 0;
    dl_iterate_phdr(add_module, &nameless);
}

void report_refresh(void)
{
    struct report *r = lapse_report;

    if (!observing(OBSERVE_REPORT))
        return;
    r->in_flight_high = in_flight_high();
    r->delivered = atomic_load_explicit(&lapse_subscribers.delivered,
                                        memory_order_relaxed);
    r->overflowed = atomic_load_explicit(&lapse_subscribers.overflowed,
                                         memory_order_relaxed);
    for (unsigned i = 0; i < SUBSCRIBERS_MAX; i++) {
        uint64_t used = atomic_load_explicit(
            &lapse_subscribers.one[i].pool.high, memory_order_relaxed);

        if (used > r->pool_high)
            r->pool_high = used;
    }
}

static void clear_counters(void)
{
    atomic_store_explicit(&lapse_subscribers.delivered, 0,
                          memory_order_relaxed);
    atomic_store_explicit(&lapse_subscribers.overflowed, 0,
                          memory_order_relaxed);
    if (!observing(OBSERVE_REPORT))
        memset(lapse_report->tallies, 0,
               in_flight_high() * sizeof(lapse_report->tallies[0]));
}

/* The text is taken over; it was mapped from the parent's file, which the new
 * one replaces in one step, so it goes through memory of our own. */
void report_fork_child(void)
{
    static char modules[REPORT_TEXT], warnings[sizeof(in_memory.warnings)];
    uint64_t modules_len, warnings_len;
    int err;

    clear_counters();
    if (!observing(OBSERVE_REPORT))
        return;
    mark(MARK_BEGIN);
    modules_len = lapse_report->modules_len;
    warnings_len = lapse_report->warnings_len;
    memcpy(modules, lapse_report->modules, modules_len);
    memcpy(warnings, lapse_report->warnings, warnings_len);
    if (map_new(lapse_report, &err)) {
        memcpy(lapse_report->modules, modules, modules_len);
        memcpy(lapse_report->warnings, warnings, warnings_len);
        lapse_report->modules_len = modules_len;
        lapse_report->warnings_len = warnings_len;
    } else {
        lapse_observing &= ~(uint32_t)OBSERVE_REPORT;
        /* the parent's counters are not ours to add to */
        sys(SYS_mmap, lapse_report, sizeof(struct report),
            PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
            -1, 0);
    }
    mark(MARK_END);
}

void report_warn(const char *line)
{
    struct report *r = lapse_report;
    size_t len = strlen(line);

    if (r->warnings_len + len + 1 > sizeof(r->warnings))
        return;
    memcpy(r->warnings + r->warnings_len, line, len);
    r->warnings_len += len;
    r->warnings[r->warnings_len++] = '\n';
}
