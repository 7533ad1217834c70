/* SPDX-License-Identifier: BSD-3-Clause */
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/trace_file.h"

enum { STACKS_KB = 16 };

int command_top(size_t *top, const char *text)
{
    char *end;
    unsigned long value;

    errno = 0;
    value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno)
        return misuse("--top wants a number from 0 up, not '%s'", text);
    *top = value;
    return 0;
}

/* NULL: as much as tells most. */
static int parse_stacks(unsigned *kb, const char *text)
{
    char *end;
    unsigned long value;

    *kb = STACKS_KB;
    if (!text)
        return 0;
    errno = 0;
    value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || !value ||
        value > TRACE_STACK_KB_MAX)
        return misuse("--stacks wants a number of KB from 1 to %u, not '%s'",
                      TRACE_STACK_KB_MAX, text);
    *kb = (unsigned)value;
    return 0;
}

int command_wrong_option(int letter, char **argv)
{
    if (letter == ':')
        return misuse("option '%s' needs a value", argv[optind - 1]);
    if (optopt) /* a letter, perhaps of many behind one dash */
        return misuse("wrong option '-%c'", optopt);
    return misuse("wrong option '%s'", argv[optind - 1]);
}

int command_parse(struct command_request *request, int argc, char **argv,
                  bool run, size_t top)
{
    static const struct option options[] = {
        {"free", no_argument, NULL, 'f'}, /* these two only of run */
        {"stacks", optional_argument, NULL, 's'},
        {"json", no_argument, NULL, 'j'},
        {"output", required_argument, NULL, 'o'},
        {"top", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    bool top_given = false;
    int letter;

    opterr = 0;
    optind = 1;
    while ((letter = getopt_long(argc, argv, "+:h", options + (run ? 0 : 2),
                                 NULL)) != -1) {
        switch (letter) {
        case 'f':
            request->free = true;
            break;
        case 's':
            if (parse_stacks(&request->stacks, optarg))
                return EXIT_USAGE;
            break;
        case 'j':
            request->json = true;
            break;
        case 'o':
            request->output = optarg;
            break;
        case 't':
            if (command_top(&request->top, optarg))
                return EXIT_USAGE;
            top_given = true;
            break;
        case 'h':
            return -1;
        default:
            return command_wrong_option(letter, argv);
        }
    }
    request->command = argv + optind;
    if (!*request->command)
        return misuse("no command to run was given");
    if (!top_given)
        request->top = request->json ? SIZE_MAX : top;
    return 0;
}

/* Never descriptor 0 to 2, which may be closed: the command inherits those. */
int command_output(FILE **out, const char *name)
{
    int fd, high;

    if (name)
        fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    else
        fd = STDERR_FILENO;
    if (fd >= 0) {
        high = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        if (name)
            close(fd);
        if (high >= 0)
            *out = fdopen(high, "w");
    }
    if (*out || !name)
        return 0; /* started without stderr: there is nobody to tell */
    say("cannot write the report to '%s': %s; nothing was run", name,
        strerror(errno));
    return EXIT_USAGE;
}

int command_not_run(const char *command, int error)
{
    if (error < 0) {
        say("cannot start a process: %s", strerror(-error));
        return EXIT_TROUBLE;
    }
    if (error == ENOENT && strchr(command, '/') && !access(command, F_OK)) {
        say("cannot run '%s': its interpreter is not there", command);
        return EXIT_NOT_FOUND;
    }
    if (error == ENOENT) {
        say("cannot run '%s': there is no such command%s", command,
            strchr(command, '/') ? "" : " in PATH");
        return EXIT_NOT_FOUND;
    }
    say("cannot run '%s': %s", command, strerror(error));
    return EXIT_NOT_RUNNABLE;
}
