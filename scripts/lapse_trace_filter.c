/* SPDX-License-Identifier: BSD-3-Clause */
/* Which records `lapse trace` shows, and the names it has for things. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "lapse_trace.h"
#include "reports.h"
#include "text.h"

static const char *const kinds[] = {
    [TRACE_RELEASE] = "release",   [TRACE_PUBLISH] = "publish",
    [TRACE_DELIVER] = "deliver",   [TRACE_OVERFLOW] = "overflow",
    [TRACE_WATCH] = "watch",       [TRACE_UNWATCH] = "unwatch",
    [TRACE_USER] = "event",
};
static const char *const insides[] = {"", "allocator", "loader", "libc"};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

const char *trace_kind_name(unsigned kind)
{
    return kind < COUNT(kinds) && kinds[kind] ? kinds[kind] : "?";
}

const char *trace_inside_name(unsigned inside)
{
    return inside < COUNT(insides) ? insides[inside] : "?";
}

/* Sets the bit of the name. */
static int add_name(uint32_t *mask, const char *option, const char *name,
                    unsigned count, const char *(*name_of)(unsigned))
{
    char known[512] = "";
    size_t length = 0;

    for (unsigned i = 0; i < count; i++) {
        if (!strcmp(name, name_of(i))) {
            *mask |= 1u << i;
            return 0;
        }
        if (strcmp(name_of(i), "?") && length < sizeof(known))
            length += (size_t)snprintf(known + length, sizeof(known) - length,
                                       " %s", name_of(i));
    }
    return misuse("%s wants one of%s, not '%s'", option, known, name);
}

int filter_path(struct trace_filter *f, const char *name)
{
    return add_name(&f->paths, "--path", name, LAPSE_PATH_COUNT,
                    reports_path_name);
}

int filter_reason(struct trace_filter *f, const char *name)
{
    return add_name(&f->reasons, "--reason", name, LAPSE_REASON_OVERFLOW + 1,
                    reports_reason_name);
}

int filter_kind(struct trace_filter *f, const char *name)
{
    return add_name(&f->kinds, "--kind", name, COUNT(kinds), trace_kind_name);
}

/* A number, in C's ways of writing one, perhaps with K, M or G behind. */
static bool parse(const char *text, int base, const char *stop, uint64_t *out,
                  const char **end)
{
    static const char units[] = "KMG";
    const char *unit;
    char *behind;

    if (*text < '0' || *text > '9') {
        if (base != 16 || !strchr("abcdefABCDEF", *text) || !*text)
            return false;
    }
    errno = 0;
    *out = strtoull(text, &behind, base);
    if (errno)
        return false;
    if (base != 16 && *behind && (unit = strchr(units, *behind))) {
        unsigned shift = 10 * (unsigned)(unit - units + 1);

        if (*out > UINT64_MAX >> shift)
            return false;
        *out <<= shift;
        behind++;
    }
    *end = behind;
    return !*behind || strchr(stop, *behind);
}

int filter_size(uint64_t *size, const char *option, const char *text)
{
    const char *end;

    if (parse(text, 0, "", size, &end))
        return 0;
    return misuse("%s wants bytes, as 4096 or 64K, not '%s'", option, text);
}

int filter_address(struct trace_filter *f, const char *text)
{
    const char *end;

    if (parse(text, 16, "-", &f->address, &end)) {
        f->address_end = f->address + 1;
        f->placed = true;
        if (!*end)
            return 0;
        if (parse(end + 1, 16, "", &f->address_end, &end) &&
            f->address_end > f->address)
            return 0;
    }
    return misuse("--address wants A or A-B, hexadecimal, not '%s'", text);
}

int filter_tid(struct trace_filter *f, const char *text)
{
    const char *end;
    uint64_t tid;

    if (!parse(text, 10, "", &tid, &end) || !tid || tid > UINT32_MAX)
        return misuse("--tid wants the number of a thread, not '%s'", text);
    f->tid = (uint32_t)tid;
    return 0;
}

static bool module_is(const struct trace_filter *f, struct source *s,
                      uint64_t pc)
{
    const struct trace_segment *segment =
        trace_segment(s->trace, pc - 1, s->record->ticks);

    return segment && strstr(base_name(segment->name), f->module);
}

static bool range_passes(const struct trace_filter *f, uint64_t start,
                         uint64_t end)
{
    uint64_t bytes = end - start;

    if (f->sized &&
        (end <= start || bytes < f->min_size || bytes > f->max_size))
        return false;
    /* where the end is not known, at least where it begins */
    return !f->placed || (start < f->address_end &&
                          (end > start ? end : start + 1) > f->address);
}

bool filter_passes(const struct trace_filter *f, struct source *s)
{
    const struct trace_record *record = s->record;
    const struct trace_release *release = (const void *)record;
    const struct trace_told *told = (const void *)record;

    if ((f->kinds && !(record->kind < 32 && f->kinds >> record->kind & 1)) ||
        (f->tid && record->tid != f->tid))
        return false;
    if (record->kind == TRACE_RELEASE)
        return (!f->paths ||
                (release->path < 32 && f->paths >> release->path & 1)) &&
               (!f->reasons ||
                (release->reason < 32 && f->reasons >> release->reason & 1)) &&
               range_passes(f, release->start, release->end) &&
               (!f->module || module_is(f, s, release->pc));
    if (f->paths || f->module)
        return false;
    if (record->kind > TRACE_RELEASE && record->kind < TRACE_USER)
        return (!f->reasons ||
                (record->kind <= TRACE_OVERFLOW && told->reason < 32 &&
                 f->reasons >> told->reason & 1)) &&
               range_passes(f, told->start, told->end);
    return !f->reasons && !f->sized && !f->placed;
}
