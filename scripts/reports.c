/* SPDX-License-Identifier: BSD-3-Clause */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reports.h"

const char *reports_reason_name(unsigned reason)
{
    static const char *const names[] = {
        [LAPSE_REASON_MUNMAP] = "munmap",
        [LAPSE_REASON_REPLACE] = "replace",
        [LAPSE_REASON_MREMAP] = "mremap",
        [LAPSE_REASON_BRK] = "brk",
        [LAPSE_REASON_SHMDT] = "shmdt",
        [LAPSE_REASON_MADVISE] = "madvise",
        [LAPSE_REASON_UNLOAD] = "unload",
        [LAPSE_REASON_FILE] = "file",
        [LAPSE_REASON_FREE] = "free",
        [LAPSE_REASON_USER] = "user",
        [LAPSE_REASON_OVERFLOW] = "overflow",
    };

    return reason < sizeof(names) / sizeof(names[0]) ? names[reason] : "?";
}

const char *reports_path_name(unsigned path)
{
    static const char *const names[LAPSE_PATH_COUNT] = {
        [LAPSE_PATH_MUNMAP] = "munmap",
        [LAPSE_PATH_MMAP] = "mmap",
        [LAPSE_PATH_MREMAP] = "mremap",
        [LAPSE_PATH_BRK] = "brk",
        [LAPSE_PATH_MADVISE] = "madvise",
        [LAPSE_PATH_SHMDT] = "shmdt",
        [LAPSE_PATH_SHMAT] = "shmat",
        [LAPSE_PATH_PROCESS_MADVISE] = "process_madvise",
        [LAPSE_PATH_REMAP_FILE_PAGES] = "remap_file_pages",
        [LAPSE_PATH_FALLOCATE] = "fallocate",
        [LAPSE_PATH_FTRUNCATE] = "ftruncate",
        [LAPSE_PATH_TRUNCATE] = "truncate",
        [LAPSE_PATH_OPEN] = "open",
        [LAPSE_PATH_PUBLISH] = "publish",
        [LAPSE_PATH_FREE] = "free",
        [LAPSE_PATH_BACKSTOP] = "backstop",
    };

    return path < LAPSE_PATH_COUNT ? names[path] : "?";
}

static void stats_add(struct lapse_path_stats *to,
                      const struct lapse_path_stats *from)
{
    to->calls += from->calls;
    to->releases += from->releases;
    to->bytes += from->bytes;
    to->inside_allocator += from->inside_allocator;
    to->inside_loader += from->inside_loader;
    to->inside_libc += from->inside_libc;
}

/* Text of the report as a string of our own; NULL without memory. */
static char *text_copy(const char *text, uint64_t length, size_t room)
{
    return strndup(text, length < room ? (size_t)length : room);
}

/*
 * The line "start end path" that covers pc. A program that is not position
 * independent has bias 0 and so seems to cover everything below it: the
 * nearest start wins.
 */
static void caller_locate(struct caller *caller, const char *modules)
{
    uint64_t pc = caller->seen.pc, best = 0;
    const char *path = NULL;

    if (caller->gone)
        return;
    for (const char *line = modules; *line;) {
        const char *end = strchrnul(line, '\n');
        char *rest;
        uint64_t from = strtoull(line, &rest, 16);
        uint64_t to = strtoull(rest, &rest, 16);

        if (pc >= from && pc < to && (!path || from >= best) &&
            rest < end && *rest == ' ') {
            best = from;
            path = rest + 1;
        }
        line = *end ? end + 1 : end;
    }
    if (!path || *path == '\n' || !*path)
        return;
    caller->module = strndup(path, strcspn(path, "\n"));
    caller->offset = pc - best;
}

static int caller_order(const void *left, const void *right)
{
    const struct report_caller *a = &((const struct caller *)left)->seen;
    const struct report_caller *b = &((const struct caller *)right)->seen;

    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    if (a->pc != b->pc)
        return a->pc < b->pc ? -1 : 1;
    return a->path < b->path ? -1 : a->path > b->path;
}

static void process_fill_callers(struct process *process,
                                 const struct report *report)
{
    process->modules =
        text_copy(report->modules, report->modules_len, REPORT_TEXT);
    process->caller = calloc(2 * REPORT_CALLERS, sizeof(*process->caller));
    for (size_t i = 0; process->caller && i < REPORT_CALLERS; i++) {
        const struct report_caller *seen = &report->callers[i];

        if (!seen->pc)
            continue;
        if (seen->gone_count) {
            struct caller *gone = &process->caller[process->callers++];

            *gone = (struct caller){.seen = *seen, .gone = true};
            gone->seen.count = seen->gone_count;
            gone->seen.bytes = seen->gone_bytes;
        }
        if (seen->count)
            process->caller[process->callers++].seen = *seen;
    }
    for (size_t i = 0; process->modules && i < process->callers; i++)
        caller_locate(&process->caller[i], process->modules);
    if (process->callers)
        qsort(process->caller, process->callers, sizeof(*process->caller),
              caller_order);
}

/*
 * A child of fork that went by _exit never listed what was loaded since its
 * program began; its parent, of which it is a copy, may have. That it is a
 * copy shows in the addresses.
 */
static void process_ask_parent(struct process *process,
                               const struct process *parent)
{
    if (!process->modules || !parent->modules || !*process->modules ||
        strncmp(process->modules, parent->modules, strlen(process->modules)))
        return;
    for (size_t i = 0; i < process->callers; i++)
        if (!process->caller[i].module)
            caller_locate(&process->caller[i], parent->modules);
}

static void reports_ask_parents(struct reports *reports)
{
    for (size_t c = 0; c < reports->count; c++)
        for (size_t p = 0; p < reports->count; p++)
            if (reports->process[c].ppid == reports->process[p].pid)
                process_ask_parent(&reports->process[c],
                                   &reports->process[p]);
}

static void process_fill(struct process *process, const struct report *report)
{
    uint64_t used = report->tallies_used;

    process->pid = report->pid;
    process->ppid = report->ppid;
    memcpy(process->name, report->name, sizeof(report->name));
    process->delivered = report->delivered;
    process->overflowed = report->overflowed;
    process->pool_high = report->pool_high;
    process->in_flight_high = report->in_flight_high;
    process->callers_lost = report->callers_lost;
    for (uint64_t i = 0; i < used && i < REPORT_TALLIES; i++)
        for (unsigned path = 0; path < LAPSE_PATH_COUNT; path++)
            report_path_add(&process->path[path],
                            &report->tallies[i].path[path]);
    for (unsigned path = 0; path < LAPSE_PATH_COUNT; path++)
        if (path != LAPSE_PATH_FREE) /* goes to the allocator */
            stats_add(&process->sum, &process->path[path]);
    process->warnings = text_copy(report->warnings, report->warnings_len,
                                  sizeof(report->warnings));
    process_fill_callers(process, report);
}

/* A copy, as the process may be alive and counting. */
static bool report_load(int fd, struct report *report)
{
    const size_t head = offsetof(struct report, tallies);
    size_t size = head, at = 0;

    while (at < size) {
        ssize_t got =
            pread(fd, (char *)report + at, size - at, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += (size_t)got;
        if (at == head && size == head)
            size += sizeof(report->tallies[0]) *
                    (report->tallies_used < REPORT_TALLIES
                         ? report->tallies_used
                         : REPORT_TALLIES);
    }
    return report->magic == REPORT_MAGIC;
}

static bool process_read(struct process *process, int dir, const char *name,
                         struct report *report)
{
    struct stat st;
    struct statx more;
    const char *dot = strchr(name, '.');
    bool good = false;
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0)
        return false;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) &&
        st.st_size >= (off_t)sizeof(*report) && report_load(fd, report)) {
        process->started = (uint64_t)st.st_mtim.tv_sec * 1000000000u +
                           (uint64_t)st.st_mtim.tv_nsec;
        /* Writing moves the time of change in some file systems. */
        if (!statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &more) &&
            (more.stx_mask & STATX_BTIME))
            process->started =
                (uint64_t)more.stx_btime.tv_sec * 1000000000u +
                more.stx_btime.tv_nsec;
        process->image = dot ? strtoull(dot + 1, NULL, 10) : 0;
        process_fill(process, report);
        good = true;
    }
    close(fd);
    return good;
}

/* The clock of files ticks slowly: pid and N decide within one tick. */
static int process_order(const void *left, const void *right)
{
    const struct process *a = left, *b = right;

    if (a->started != b->started)
        return a->started < b->started ? -1 : 1;
    if (a->pid != b->pid)
        return a->pid < b->pid ? -1 : 1;
    return a->image < b->image ? -1 : a->image > b->image;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void reports_add(struct reports *reports)
{
    struct process *total = &reports->total;

    for (size_t i = 0; i < reports->count; i++) {
        const struct process *p = &reports->process[i];

        for (unsigned path = 0; path < LAPSE_PATH_COUNT; path++)
            stats_add(&total->path[path], &p->path[path]);
        stats_add(&total->sum, &p->sum);
        total->delivered += p->delivered;
        total->overflowed += p->overflowed;
        total->callers_lost += p->callers_lost;
        total->pool_high = larger(total->pool_high, p->pool_high);
        total->in_flight_high =
            larger(total->in_flight_high, p->in_flight_high);
    }
}

void reports_read(struct reports *reports, const char *dir)
{
    struct report *buffer = malloc(sizeof(*buffer));
    DIR *list = opendir(dir);
    struct dirent *entry;
    size_t room = 0;

    memset(reports, 0, sizeof(*reports));
    while (buffer && list && (entry = readdir(list))) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        if (reports->count == room) {
            struct process *more;

            room = room ? 2 * room : 16;
            more = realloc(reports->process, room * sizeof(*more));
            if (!more)
                break;
            reports->process = more;
        }
        memset(&reports->process[reports->count], 0, sizeof(struct process));
        if (process_read(&reports->process[reports->count], dirfd(list),
                         entry->d_name, buffer))
            reports->count++;
        else
            reports->unreadable++;
    }
    if (list)
        closedir(list);
    free(buffer);
    if (reports->count)
        qsort(reports->process, reports->count, sizeof(struct process),
              process_order);
    reports_ask_parents(reports);
    reports_add(reports);
}

void reports_free(struct reports *reports)
{
    for (size_t i = 0; i < reports->count; i++) {
        struct process *process = &reports->process[i];

        for (size_t c = 0; c < process->callers; c++)
            free(process->caller[c].module);
        free(process->caller);
        free(process->warnings);
        free(process->modules);
    }
    free(reports->process);
}
