/* SPDX-License-Identifier: BSD-3-Clause */
/* `lapse report`: what traces tell. */
#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <string.h>

#include "command.h"
#include "past.h"
#include "symbols.h"
#include "unwind.h"

enum { TOP = 10 };

enum format {
    FORMAT_NONE,
    FORMAT_TEXT,
    FORMAT_JSON,
    FORMAT_FOLDED,
    FORMAT_PERFETTO
};

struct report_request {
    enum format format;
    enum past_by by;
    bool top_given;
    size_t top;
    const char *output, *html;
    char **file;
};

void lapse_past_help(void)
{
    fputs("Usage: lapse report [OPTION...] FILE|DIR...\n"
          "Tells from traces (LAPSE_TRACE=DIR, and 'lapse trace') what was "
          "released, by whom,\nwhom it hit and how long those waited until "
          "they were told.\n\n"
          "  --json         as JSON\n"
          "  --folded       as folded stacks, for flamegraph tools\n"
          "  --by WHAT      of --folded: count (default), bytes or hits\n"
          "  --perfetto     as events that ui.perfetto.dev and "
          "chrome://tracing open\n"
          "  --html FILE    a picture of the address space over time goes to "
          "FILE\n"
          "  --output FILE  the rest goes to FILE, not to standard output\n"
          "  --top N        list N callers of each kind (default 10; with "
          "--json: all)\n"
          "  --help         say this\n\n"
          "The exit status is 0, 2 for a wrong command line, 125 if a trace "
          "could not be\nread: lapse(1).\n",
          stdout);
}

static int parse_by(struct report_request *request, const char *text)
{
    static const char *const names[] = {"count", "bytes", "hits"};

    for (unsigned i = 0; i < 3; i++)
        if (!strcmp(text, names[i])) {
            request->by = (enum past_by)i;
            return 0;
        }
    return misuse("--by wants count, bytes or hits, not '%s'", text);
}

static int set_format(struct report_request *request, enum format format)
{
    if (request->format && request->format != format)
        return misuse("only one of --json, --folded and --perfetto");
    request->format = format;
    return 0;
}

static int parse_option(struct report_request *request, int letter, char **argv)
{
    switch (letter) {
    case 'j':
        return set_format(request, FORMAT_JSON);
    case 'f':
        return set_format(request, FORMAT_FOLDED);
    case 'p':
        return set_format(request, FORMAT_PERFETTO);
    case 'b':
        return parse_by(request, optarg);
    case 'm':
        request->html = optarg;
        return 0;
    case 'o':
        request->output = optarg;
        return 0;
    case 't':
        request->top_given = true;
        return command_top(&request->top, optarg);
    case 'h':
        return -1;
    default:
        return command_wrong_option(letter, argv);
    }
}

static int parse(struct report_request *request, int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'},
        {"folded", no_argument, NULL, 'f'},
        {"by", required_argument, NULL, 'b'},
        {"perfetto", no_argument, NULL, 'p'},
        {"html", required_argument, NULL, 'm'},
        {"output", required_argument, NULL, 'o'},
        {"top", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int letter, error;

    opterr = 0;
    optind = 1;
    while ((letter = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        error = parse_option(request, letter, argv);
        if (error)
            return error;
    }
    request->file = argv + optind;
    if (!*request->file)
        return misuse("no trace was given");
    if (!request->format && !request->html)
        request->format = FORMAT_TEXT;
    if (!request->top_given)
        request->top = request->format == FORMAT_JSON ? SIZE_MAX : TOP;
    return 0;
}

static void write_format(const struct report_request *request,
                         struct past *past, FILE *out)
{
    switch (request->format) {
    case FORMAT_JSON:
        past_json(past, out, request->top);
        break;
    case FORMAT_FOLDED:
        past_folded(past, out, request->by);
        break;
    case FORMAT_PERFETTO:
        past_perfetto(past, out);
        break;
    default:
        past_print(past, out, request->top);
    }
}

/* Opened before the traces are read, which may take long. */
static int open_output(FILE **out, const char *name)
{
    *out = fopen(name, "we");
    if (*out)
        return 0;
    say("cannot write to '%s': %s", name, strerror(errno));
    return EXIT_USAGE;
}

static int close_output(FILE *out, const char *name)
{
    bool failed = ferror(out) | (fflush(out) != 0);

    if (out != stdout && fclose(out))
        failed = true;
    if (!failed)
        return 0;
    say("could not write all of %s: %s", name ? name : "the report",
        strerror(errno));
    return EXIT_TROUBLE;
}

static int show(const struct report_request *request, struct past *past,
                FILE *out, FILE *html)
{
    int error = 0;

    past_settle(past);
    if (html) {
        past_picture(past, html, request->top_given ? request->top : TOP);
        error = close_output(html, request->html);
    }
    if (request->format) {
        write_format(request, past, out);
        error |= close_output(out, request->output);
    }
    return error;
}

int lapse_past(int argc, char **argv)
{
    struct report_request request = {0};
    struct past past = {0};
    FILE *out = stdout, *html = NULL;
    int error = parse(&request, argc, argv), trouble = 0;

    if (error < 0) {
        lapse_past_help();
        return 0;
    }
    if (!error && request.output)
        error = open_output(&out, request.output);
    if (!error && request.html)
        error = open_output(&html, request.html);
    if (error)
        return error;
    for (char **file = request.file; *file; file++)
        if (!past_read(&past, *file))
            trouble = EXIT_TROUBLE;
    if (past.processes)
        error = show(&request, &past, out, html);
    past_free(&past);
    unwind_free();
    symbols_free();
    return error ? error : trouble;
}
