/* SPDX-License-Identifier: BSD-3-Clause */
/* The report of `lapse run` as a JSON document, one path or caller a line. */
#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>

#include "reports.h"
#include "symbols.h"

/* Length of the well-formed UTF-8 character at s, 0 when it is none. */
static size_t utf8_length(const unsigned char *s, size_t left)
{
    uint32_t value;
    size_t length = s[0] < 0x80   ? 1
                    : s[0] < 0xc2 ? 0
                    : s[0] < 0xe0 ? 2
                    : s[0] < 0xf0 ? 3
                    : s[0] < 0xf5 ? 4
                                  : 0;

    if (length <= 1 || length > left)
        return length > left ? 0 : length;
    value = s[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (s[i] & 0x3f);
    }
    if ((length == 3 && (value < 0x800 || (value >> 11) == 0x1b)) ||
        (length == 4 && (value < 0x10000 || value > 0x10ffff)))
        return 0;
    return length;
}

/*
 * A byte that is no UTF-8 becomes the lone surrogate U+DC00 + byte, as in
 * Python's surrogateescape: the document stays valid, nothing is lost.
 */
static void put_string(FILE *out, const char *text, size_t length)
{
    const unsigned char *s = (const unsigned char *)text;

    putc('"', out);
    for (size_t i = 0, n; i < length; i += n) {
        n = utf8_length(s + i, length - i);
        if (!n) {
            fprintf(out, "\\udc%02x", s[i]);
            n = 1;
        } else if (s[i] == '"' || s[i] == '\\') {
            fprintf(out, "\\%c", s[i]);
        } else if (s[i] < 0x20 || s[i] == 0x7f) {
            fprintf(out, "\\u%04x", s[i]);
        } else {
            fwrite(s + i, 1, n, out);
        }
    }
    putc('"', out);
}

static void put_string_or_null(FILE *out, const char *text)
{
    if (text)
        put_string(out, text, strlen(text));
    else
        fputs("null", out);
}

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
    put_string_or_null(out, caller->module);
    if (caller->module) {
        fprintf(out, ", \"offset\": \"0x%" PRIx64 "\", \"symbol\": ",
                caller->offset);
        put_string_or_null(out,
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
            put_string(out, lines, length);
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
    put_string(out, p->name, strlen(p->name));
    fputs(",\n     ", out);
    put_counts(out, p);
    fputs(",\n     \"callers\": [", out);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? ",\n" : "\n", out);
        put_caller(out, &p->caller[i]);
    }
    fputs("],\n     ", out);
    put_warnings(out, p->warnings);
    putc('}', out);
}

void reports_print_json(const struct reports *reports, FILE *out, size_t top,
                        char **command, int status)
{
    fputs("{\n  \"version\": 1,\n  \"command\": [", out);
    for (size_t i = 0; command[i]; i++) {
        fputs(i ? ", " : "", out);
        put_string(out, command[i], strlen(command[i]));
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
