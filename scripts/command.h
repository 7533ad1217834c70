/* SPDX-License-Identifier: BSD-3-Clause */
/* What the subcommands of the program `lapse` share. */
#ifndef COMMAND_H
#define COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Exit statuses that are ours; the rest are those of the command run. */
enum {
    EXIT_UNSEEN = 1,         /* of audit: a release was not seen */
    EXIT_USAGE = 2,          /* wrong option, --output cannot be opened */
    EXIT_TROUBLE = 125,      /* lapse itself could not do its work */
    EXIT_NOT_RUNNABLE = 126, /* the command is there but cannot be run */
    EXIT_NOT_FOUND = 127     /* there is no such command */
};

/* One line on stderr, "lapse: " before it and a newline after it. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A wrong command line: says it, points at --help, returns EXIT_USAGE. */
int misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* getopt's ':' and '?': says what is wrong, returns EXIT_USAGE. */
int command_wrong_option(int letter, char **argv);

/* The value of --top: 0, or EXIT_USAGE, said. */
int command_top(size_t *top, const char *text);

/* A command to run, and how to report on it. */
struct command_request {
    bool free, json;
    unsigned stacks; /* KB of each; 0: none */
    size_t top;
    const char *output;
    char **command;
};

/*
 * Reads the options of a subcommand that runs a command: --json, --output,
 * --top (top, or with --json all, if it is not given), --help, and, of `run`
 * alone, --free and --stacks. 0, EXIT_USAGE, or -1 when help was asked for.
 */
int command_parse(struct command_request *request, int argc, char **argv,
                  bool run, size_t top);

/*
 * Opens what --output names (nothing: stderr) before the command runs. 0 or
 * EXIT_USAGE, said; *out stays NULL when there is no stderr.
 */
int command_output(FILE **out, const char *name);

/* The command never ran, for supervise() gave that error: the exit status. */
int command_not_run(const char *command, int error);

/* The subcommands: argv[0] is their name, the result an exit status. */
int lapse_run(int argc, char **argv);
void lapse_run_help(void);
int lapse_check(int argc, char **argv);
void lapse_check_help(void);
int lapse_trace(int argc, char **argv);
void lapse_trace_help(void);
int lapse_audit(int argc, char **argv);
void lapse_audit_help(void);
int lapse_past(int argc, char **argv);
void lapse_past_help(void);
int lapse_stacks(int argc, char **argv);
void lapse_stacks_help(void);

#endif
