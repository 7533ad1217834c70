/* SPDX-License-Identifier: BSD-3-Clause */
/* The stacks of a process, for people and for programs. */
#include <inttypes.h>
#include <string.h>

#include "json.h"
#include "reports.h"
#include "run_stacks.h"
#include "text.h"

enum { FRAMES_SHOWN = 24 };

static void frame_print(FILE *out, const struct stack_frame *f)
{
    fputs("            ", out);
    if (!f->module) {
        fprintf(out, "0x%" PRIx64 "\n", f->pc);
        return;
    }
    put_name(out, base_name(f->module));
    fprintf(out, "+0x%" PRIx64, f->offset);
    if (f->symbol) {
        fputs(" (", out);
        put_text(out, f->symbol, strlen(f->symbol));
        putc(')', out);
    }
    putc('\n', out);
}

static void end_print(FILE *out, const struct stack *s)
{
    static const char *const ends[] = {
        [UNWIND_CUT] = "the copy of the stack ends here",
        [UNWIND_NO_TABLE] = "nothing tells how this code is unwound",
        [UNWIND_NO_MODULE] = "no module is known there",
    };

    if (s->frames > FRAMES_SHOWN)
        fprintf(out, "            ... %zu more\n", s->frames - FRAMES_SHOWN);
    else if (s->end < UNWIND_NO_STACK && ends[s->end])
        fprintf(out, "            ... %s\n", ends[s->end]);
}

static void stack_print(FILE *out, const struct stack *s)
{
    char bytes[16];

    fprintf(out, "  %9" PRIu64 " %-16s %7s\n", s->count,
            reports_path_name(s->path), human(s->bytes, bytes));
    for (size_t i = 0; i < s->frames && i < FRAMES_SHOWN; i++)
        frame_print(out, &s->frame[i]);
    end_print(out, s);
}

static void gaps_print(FILE *out, const struct stacks *s)
{
    if (s->without)
        fprintf(out, "  %9" PRIu64 " releases whose stack could not be "
                "copied\n", s->without);
    if (s->overwritten)
        fprintf(out, "  %9" PRIu64 " records were written over before they "
                "were read\n", s->overwritten);
    if (s->lost)
        fprintf(out, "  %9" PRIu64 " records found no room\n", s->lost);
}

void stacks_print(FILE *out, const struct stacks *s, size_t top)
{
    size_t n = s->distinct < top ? s->distinct : top;

    if (s->none)
        fputs("  No stacks: this process could keep no trace.\n", out);
    if (!s->sorted)
        return;
    if (n && n < s->distinct)
        fprintf(out, "  Stacks, the first %zu of %zu:\n", n, s->distinct);
    else if (n)
        fputs("  Stacks:\n", out);
    for (size_t i = 0; i < n; i++)
        stack_print(out, s->sorted[i]);
    gaps_print(out, s);
}

static void put_frame(FILE *out, const struct stack_frame *f)
{
    fprintf(out, "        {\"pc\": \"0x%" PRIx64 "\", \"module\": ", f->pc);
    json_string_or_null(out, f->module);
    fputs(", \"build_id\": ", out);
    json_string_or_null(out, *f->build_id ? f->build_id : NULL);
    if (f->module)
        fprintf(out, ", \"offset\": \"0x%" PRIx64 "\", \"symbol\": ",
                f->offset);
    else
        fputs(", \"offset\": null, \"symbol\": ", out);
    json_string_or_null(out, f->symbol);
    if (f->symbol)
        fprintf(out, ", \"symbol_offset\": %" PRIu64 "}", f->symbol_offset);
    else
        fputs(", \"symbol_offset\": null}", out);
}

static void put_stack(FILE *out, const struct stack *s)
{
    static const char *const ends[] = {"whole", "cut", "no table",
                                       "no module", "no stack"};

    fprintf(out,
            "      {\"path\": \"%s\", \"count\": %" PRIu64 ", \"bytes\": %"
            PRIu64 ", \"end\": \"%s\", \"frames\": [",
            reports_path_name(s->path), s->count, s->bytes, ends[s->end]);
    for (size_t i = 0; i < s->frames; i++) {
        fputs(i ? ",\n" : "\n", out);
        put_frame(out, &s->frame[i]);
    }
    fputs("]}", out);
}

void stacks_print_json(FILE *out, const struct stacks *s, size_t top)
{
    size_t n = !s->sorted ? 0 : s->distinct < top ? s->distinct : top;

    fprintf(out,
            "\"without_stack\": %" PRIu64 ", \"overwritten\": %" PRIu64
            ", \"lost\": %" PRIu64 ", \"stacks\": [",
            s->without, s->overwritten, s->lost);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? ",\n" : "\n", out);
        put_stack(out, s->sorted[i]);
    }
    putc(']', out);
}
