/* SPDX-License-Identifier: BSD-3-Clause */
/* The report of `lapse run` as one screen for people. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "reports.h"
#include "run_stacks.h"
#include "symbols.h"
#include "text.h"

enum {
    SHOWN = 8, /* processes in full; of more only those that released most */
    WIDTH = 78
};

static void row(FILE *out, const char *name, const struct lapse_path_stats *s)
{
    char bytes[16];

    fprintf(out,
            "  %-16s %9" PRIu64 " %9" PRIu64 " %7s %12" PRIu64 " %9" PRIu64
            " %7" PRIu64 "\n",
            name, s->calls, s->releases, human(s->bytes, bytes),
            s->inside_allocator, s->inside_loader, s->inside_libc);
}

static void table(FILE *out, const struct process *process)
{
    unsigned rows = 0;

    fprintf(out, "  %-16s %9s %9s %7s %12s %9s %7s\n", "path", "calls",
            "releases", "bytes", "in allocator", "in loader", "in libc");
    for (unsigned path = 0; path < LAPSE_PATH_COUNT; path++) {
        if (!process->path[path].calls)
            continue;
        row(out, reports_path_name(path), &process->path[path]);
        rows++;
    }
    if (rows > 1)
        row(out, "total", &process->sum);
}

/* A sentence of many parts, broken between words. */
struct sentence {
    char text[512];
    size_t length;
};

static void add(struct sentence *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add(struct sentence *s, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(s->text + s->length, sizeof(s->text) - s->length, format,
                  args);
    va_end(args);
    if (n > 0)
        s->length += (size_t)n;
    if (s->length >= sizeof(s->text))
        s->length = sizeof(s->text) - 1;
}

static void sentence_print(struct sentence *s, FILE *out)
{
    size_t column = 0;

    for (char *word = strtok(s->text, " "); word; word = strtok(NULL, " ")) {
        if (column && column + 1 + strlen(word) > WIDTH) {
            putc('\n', out);
            column = 0;
        }
        fprintf(out, "%s%s", column ? " " : "  ", word);
        column += strlen(word) + (column ? 1 : 2);
    }
    putc('\n', out);
}

static void verdict(FILE *out, const struct lapse_path_stats *sum)
{
    struct sentence s = {.length = 0};
    uint64_t inside = sum->inside_allocator + sum->inside_loader;

    if (!sum->releases) {
        add(&s, "Nothing was released.");
    } else if (!inside) {
        add(&s, "None of the %" PRIu64 " release%s came from inside an "
            "allocator or the loader.", sum->releases, plural(sum->releases));
    } else {
        if (sum->inside_allocator)
            add(&s, "%" PRIu64 " of %" PRIu64 " release%s came from inside an "
                "allocator", sum->inside_allocator, sum->releases,
                plural(sum->releases));
        if (sum->inside_allocator && sum->inside_loader)
            add(&s, ", %" PRIu64 " from inside the loader",
                sum->inside_loader);
        else if (sum->inside_loader)
            add(&s, "%" PRIu64 " of %" PRIu64 " release%s came from inside "
                "the loader", sum->inside_loader, sum->releases,
                plural(sum->releases));
        add(&s, ": a cache callback run there could have hung.");
    }
    sentence_print(&s, out);
}

static void marks(FILE *out, const struct process *p)
{
    struct sentence s = {.length = 0};

    add(&s, "At most at once: %" PRIu64 " record%s in use, %" PRIu64
        " release%s in flight.", p->pool_high, plural(p->pool_high),
        p->in_flight_high, plural(p->in_flight_high));
    if (p->overflowed)
        add(&s, " Overflowed: %" PRIu64 " time%s a queue was full and its "
            "subscriber was told that everything may have gone.",
            p->overflowed, plural(p->overflowed));
    sentence_print(&s, out);
}

/* Those of a child are mostly those of its parent: not shown twice. */
static void warnings(FILE *out, const char *lines, const char **before)
{
    if (lines && *lines && *before && !strcmp(lines, *before)) {
        fputs("  Warnings as above.\n", out);
        return;
    }
    *before = lines;
    while (lines && *lines) {
        size_t length = strcspn(lines, "\n");

        if (length) {
            fputs("  warning: ", out);
            put_text(out, lines, length);
            putc('\n', out);
        }
        lines += length + (lines[length] == '\n');
    }
}

static void caller_print(FILE *out, const struct caller *caller)
{
    const char *symbol;
    char bytes[16];

    fprintf(out, "  %9" PRIu64 " %-16s %7s  ", caller->seen.count,
            caller->seen.path < LAPSE_PATH_COUNT
                ? reports_path_name((unsigned)caller->seen.path)
                : "?",
            human(caller->seen.bytes, bytes));
    if (!caller->module) {
        fprintf(out, "0x%" PRIx64 "%s\n", caller->seen.pc,
                caller->gone ? " (a module that was unloaded)" : "");
        return;
    }
    put_name(out, base_name(caller->module));
    fprintf(out, "+0x%" PRIx64, caller->offset);
    /* The call, not what comes behind it, which may be another function. */
    symbol = symbols_find(caller->module, caller->offset - 1);
    if (symbol) {
        fputs(" (", out);
        put_text(out, symbol, strlen(symbol));
        putc(')', out);
    }
    putc('\n', out);
}

static void callers(FILE *out, const struct process *process, size_t top)
{
    size_t n = process->callers < top ? process->callers : top;

    if (!n)
        return;
    if (n < process->callers)
        fprintf(out, "  Callers, the first %zu of %zu:\n", n,
                process->callers);
    else
        fputs("  Callers:\n", out);
    for (size_t i = 0; i < n; i++)
        caller_print(out, &process->caller[i]);
    if (process->callers_lost)
        fprintf(out, "  %9" PRIu64 " more by callers the table had no room "
                "for\n", process->callers_lost);
}

static void process_print(FILE *out, const struct process *process, size_t top,
                          const char **warned)
{
    fputs("lapse: ", out);
    put_text(out, process->name, sizeof(process->name));
    fprintf(out, " (pid %" PRIu32 ")\n", process->pid);
    if (process->sum.calls || process->path[LAPSE_PATH_FREE].calls) {
        table(out, process);
        verdict(out, &process->sum);
        marks(out, process);
    } else {
        fputs("  Nothing was released.\n", out);
    }
    warnings(out, process->warnings, warned);
    callers(out, process, top);
    if (process->stacks)
        stacks_print(out, process->stacks, top);
}

static void total_print(FILE *out, const struct reports *reports)
{
    fprintf(out, "lapse: all %zu processes\n", reports->count);
    if (reports->total.sum.calls)
        table(out, &reports->total);
    verdict(out, &reports->total.sum);
    if (reports->count > SHOWN)
        marks(out, &reports->total);
}

/* More releases first; of equals the earlier process. */
static int rank(const void *left, const void *right)
{
    const struct process *a = *(const struct process *const *)left;
    const struct process *b = *(const struct process *const *)right;

    if (a->sum.releases != b->sum.releases)
        return a->sum.releases > b->sum.releases ? -1 : 1;
    return a < b ? -1 : a > b;
}

static int age(const void *left, const void *right)
{
    const struct process *a = *(const struct process *const *)left;
    const struct process *b = *(const struct process *const *)right;

    return a < b ? -1 : a > b;
}

/* One that released nothing is of interest alone, or for a new warning. */
static bool worth_showing(const struct reports *reports, size_t index)
{
    const struct process *process = &reports->process[index];

    if (process->sum.releases || reports->count == 1)
        return true;
    if (!process->warnings || !*process->warnings)
        return false;
    for (size_t i = 0; i < index; i++) {
        const char *other = reports->process[i].warnings;

        if (other && !strcmp(other, process->warnings))
            return false;
    }
    return true;
}

static void rest_print(const struct reports *reports, FILE *out,
                       const struct process **shown, size_t count)
{
    uint64_t releases = reports->total.sum.releases;
    size_t rest = reports->count - count;

    for (size_t i = 0; i < count; i++)
        releases -= shown[i]->sum.releases;
    if (!rest)
        return;
    fprintf(out, "lapse: %zu %sprocess%s made ", rest, count ? "more " : "",
            rest == 1 ? "" : "es");
    if (releases)
        fprintf(out, "%" PRIu64 " release%s", releases, plural(releases));
    else
        fputs("no release", out);
    fputs(" (--json shows all)\n", out);
}

void reports_print(const struct reports *reports, FILE *out, size_t top)
{
    const struct process **shown = calloc(reports->count + 1, sizeof(*shown));
    const char *warned = NULL;
    size_t count = 0;

    for (size_t i = 0; shown && i < reports->count; i++)
        if (worth_showing(reports, i))
            shown[count++] = &reports->process[i];
    if (count > SHOWN) {
        qsort(shown, count, sizeof(*shown), rank);
        count = SHOWN;
        qsort(shown, count, sizeof(*shown), age);
    }
    for (size_t i = 0; i < count; i++)
        process_print(out, shown[i], top, &warned);
    rest_print(reports, out, shown, count);
    free(shown);
    if (reports->count > 1)
        total_print(out, reports);
    if (reports->unreadable)
        fprintf(out, "lapse: %zu report%s could not be read: left unfinished, "
                "or by a liblapse of another version\n", reports->unreadable,
                plural(reports->unreadable));
}
