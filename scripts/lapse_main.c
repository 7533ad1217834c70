/* SPDX-License-Identifier: BSD-3-Clause */
/* The program `lapse`: finds the subcommand and hands over to it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "command.h"

static const struct subcommand {
    const char *name;
    int (*run)(int argc, char **argv);
    void (*help)(void);
    const char *what;
} subcommands[] = {
    {"run", lapse_run, lapse_run_help,
     "run a program and report what memory it released"},
    {"check", lapse_check, lapse_check_help,
     "release memory in every way there is, and show which are seen"},
    {"audit", lapse_audit, lapse_audit_help,
     "run a program and report what it released unseen"},
    {"trace", lapse_trace, lapse_trace_help,
     "show what a program releases, live or afterwards"},
    {"report", lapse_past, lapse_past_help,
     "tell from traces what was released, by whom, and whom it hit"},
    {"stacks", lapse_stacks, lapse_stacks_help,
     "show where the threads of a process are, and who waits for whom"},
};
enum { SUBCOMMANDS = sizeof(subcommands) / sizeof(subcommands[0]) };

static void vsay(const char *format, va_list args)
{
    char line[8192];

    /* One write for the whole line: the command run writes here as well. */
    vsnprintf(line, sizeof(line), format, args);
    fprintf(stderr, "lapse: %s\n", line);
}

void say(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsay(format, args);
    va_end(args);
}

int misuse(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsay(format, args);
    va_end(args);
    fputs("Try 'lapse --help'.\n", stderr);
    return EXIT_USAGE;
}

static const struct subcommand *subcommand_find(const char *name)
{
    for (size_t i = 0; i < SUBCOMMANDS; i++)
        if (!strcmp(subcommands[i].name, name))
            return &subcommands[i];
    return NULL;
}

static int help(FILE *out)
{
    fputs("Usage: lapse COMMAND [OPTION...] [ARGUMENT...]\n"
          "Shows the memory that a program gives back while it may still be\n"
          "registered with a device.\n\nCommands:\n", out);
    for (size_t i = 0; i < SUBCOMMANDS; i++)
        fprintf(out, "  %-6s %s\n", subcommands[i].name,
                subcommands[i].what);
    fputs("  help   say this, or explain one command: lapse help run\n\n"
          "  --version  print the version\n"
          "  --help     say this\n\n"
          "The manual is lapse(1).\n", out);
    return 0;
}

static int help_on(int argc, char **argv)
{
    const struct subcommand *sub;

    if (argc < 2)
        return help(stdout);
    sub = subcommand_find(argv[1]);
    if (!sub)
        return misuse("there is no command '%s' to explain", argv[1]);
    sub->help();
    return 0;
}

int main(int argc, char **argv)
{
    const struct subcommand *sub;

    if (argc < 2) {
        help(stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
        return help(stdout);
    if (!strcmp(argv[1], "help"))
        return help_on(argc - 1, argv + 1);
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        puts("lapse " LAPSE_VERSION);
        return 0;
    }
    sub = subcommand_find(argv[1]);
    if (sub)
        return sub->run(argc - 1, argv + 1);
    if (argv[1][0] == '-')
        return misuse("unknown option '%s'", argv[1]);
    return misuse("unknown command '%s' (to run a program: lapse run -- %s)",
                  argv[1], argv[1]);
}
