/* SPDX-License-Identifier: BSD-3-Clause */
/* The report of `lapse run` as a JSON document, one path or caller a line. */
#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>

#include "json.h"
#include "reports.h"
#include "run_stacks.h"
#include "symbols.h"

static void put_stats(FILE *out, const struct lapse_path_stats *s)
{
    fprintf(out,
            "\"calls\": %" PRIu64 ", \"releases\": %" PRIu64
            ", \"bytes\": %" PRIu64 ", \"inside_allocator\": %" PRIu64
            ", \"inside_loader\": %" PRIu64 ", \"inside_libc\": %" PRIu64,
            s->calls, s->releases, s->bytes, s->inside_allocator,
            s->inside_loader, s->inside_libc);
}

/* What a process and the total have in common. */
static void put_counts(FILE *out, const struct process *p)
{
    fputs("\"paths\": [", out);
    for (unsigned path = 0; path < LAPSE_PATH_COUNT; path++) {
        fprintf(out, "%s\n      {\"path\": \"%s\", ", path ? "," : "",
                reports_path_name(path));
        put_stats(out, &p->path[path]);
        putc('}', out);
    }
    fprintf(out,
            "\n    ],\n     \"delivered\": %" PRIu64
            ", \"overflowed\": %" PRIu64 ", \"pool_high\": %" PRIu64
            ", \"in_flight_high\": %" PRIu64 ", \"callers_lost\": %" PRIu64,
            p->delivered, p->overflowed, p->pool_high, p->in_flight_high,
            p->callers_lost);
}

static void put_caller(FILE *out, const struct caller *caller)
{
    fprintf(out, "      {\"pc\": \"0x%" PRIx64 "\", \"module\": ",
            caller->seen.pc);
    json_string_or_null(out, caller->module);
    if (caller->module) {
        fprintf(out, ", \"offset\": \"0x%" PRIx64 "\", \"symbol\": ",
                caller->offset);
        json_string_or_null(out,
                           symbols_find(caller->module, caller->offset - 1));
    } else {
        fputs(", \"offset\": null, \"symbol\": null", out);
    }
    fprintf(out,
            ", \"path\": \"%s\", \"count\": %" PRIu64 ", \"bytes\": %" PRIu64
            "}",
            caller->seen.path < LAPSE_PATH_COUNT
                ? reports_path_name((unsigned)caller->seen.path)
                : "?",
            caller->seen.count, caller->seen.bytes);
}

static void put_warnings(FILE *out, const char *lines)
{
    int n = 0;

    fputs("\"warnings\": [", out);
    while (lines && *lines) {
        size_t length = strcspn(lines, "\n");

        if (length) {
            fputs(n++ ? ",\n      " : "\n      ", out);
            json_string(out, lines, length);
        }
        lines += length + (lines[length] == '\n');
    }
    putc(']', out);
}

static void put_process(FILE *out, const struct process *p, size_t top)
{
    size_t n = p->callers < top ? p->callers : top;

    fprintf(out, "\n    {\"pid\": %" PRIu32 ", \"ppid\": %" PRIu32
            ", \"name\": ", p->pid, p->ppid);
    json_string(out, p->name, strlen(p->name));
    fputs(",\n     ", out);
    put_counts(out, p);
    fputs(",\n     \"callers\": [", out);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? ",\n" : "\n", out);
        put_caller(out, &p->caller[i]);
    }
    fputs("],\n     ", out);
    if (p->stacks) {
        stacks_print_json(out, p->stacks, top);
        fputs(",\n     ", out);
    }
    put_warnings(out, p->warnings);
    putc('}', out);
}

void reports_print_json(const struct reports *reports, FILE *out, size_t top,
                        char **command, int status)
{
    fputs("{\n  \"version\": 1,\n  \"command\": [", out);
    for (size_t i = 0; command[i]; i++) {
        fputs(i ? ", " : "", out);
        json_string(out, command[i], strlen(command[i]));
    }
    if (WIFSIGNALED(status))
        fprintf(out, "],\n  \"exit\": {\"signal\": %d},\n",
                WTERMSIG(status));
    else
        fprintf(out, "],\n  \"exit\": {\"code\": %d},\n",
                WEXITSTATUS(status));
    fputs("  \"processes\": [", out);
    for (size_t i = 0; i < reports->count; i++) {
        fputs(i ? "," : "", out);
        put_process(out, &reports->process[i], top);
    }
    fprintf(out, "],\n  \"unreadable\": %zu,\n  \"total\":\n    {\"processes\""
            ": %zu, ", reports->unreadable, reports->count);
    put_stats(out, &reports->total.sum);
    fputs(",\n     ", out);
    put_counts(out, &reports->total);
    fputs("}\n}\n", out);
}
