/* SPDX-License-Identifier: BSD-3-Clause */
/* `lapse audit`: does the shim see all that a program releases? */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "audit.h"
#include "command.h"
#include "inspect.h"
#include "preload.h"
#include "symbols.h"

enum { TOP = 20 };

struct request {
    struct command_request asked;
    FILE *out;
    char library[PATH_MAX];
};

void lapse_audit_help(void)
{
    fputs("Usage: lapse audit [OPTION...] [--] COMMAND [ARGUMENT...]\n"
          "Runs COMMAND with the library preloaded, watches from outside each "
          "system call that\nreleases memory, and reports those that the "
          "library did not see: by place in the\ncode, with a count.\n\n"
          "  --json         the report as JSON\n"
          "  --output FILE  the report goes to FILE, not to standard error\n"
          "  --top N        list N places (default 20; with --json: all)\n"
          "  --help         say this\n\n"
          "The exit status is 1 when a release was not seen, else that of "
          "COMMAND; 2, 125,\n126 and 127 can be ours: lapse(1).\n",
          stdout);
}

static bool audit_make(struct audit *audit, const char *library)
{
    struct stat st;

    audit_trace_make(audit);
    if (!realpath(library, audit->library) || stat(audit->library, &st)) {
        say("cannot look at '%s': %s", library, strerror(errno));
        return false;
    }
    audit->library_inode = st.st_ino;
    if (audit_tasks_make(audit))
        return true;
    say("out of memory");
    return false;
}

static int not_run(const char *command, int error)
{
    if (error != -EPERM && error != -ENOSYS && error != -EACCES &&
        error != -EINVAL)
        return command_not_run(command, error);
    say("this process may not trace another one here (ptrace and seccomp): %s."
        " In a container, start it with --cap-add=SYS_PTRACE; otherwise see "
        "/proc/sys/kernel/yama/ptrace_scope; under gdb, strace or another "
        "audit it cannot be done; nothing was run",
        strerror(-error));
    return EXIT_TROUBLE;
}

static int run_command(struct request *request, struct audit *audit)
{
    const char *command = request->asked.command[0];
    struct preload_environment environment;
    int error = EXIT_TROUBLE;

    if (!preload_environment_make(&environment, request->library, NULL,
                                  inspect(command).asan)) {
        say("out of memory");
    } else {
        error = supervise(request->asked.command, environment.all,
                          &audit->onlooker, &audit->status);
        if (error)
            error = not_run(command, error);
        else
            audit_trace_rest(audit);
    }
    preload_environment_free(&environment);
    return error;
}

static void print(const struct request *request, struct audit *audit)
{
    if (!request->out)
        return;
    audit_findings_sort(audit);
    if (request->asked.json)
        audit_print_json(audit, request->out, request->asked.top,
                         request->asked.command);
    else
        audit_print(audit, request->out, request->asked.top,
                    request->asked.command);
    if (fflush(request->out) || ferror(request->out))
        say("the report could not be written in full: %s", strerror(errno));
    fclose(request->out);
}

static int verdict(const struct audit *audit)
{
    if (audit->unseen)
        return EXIT_UNSEEN;
    if (audit->lost)
        return EXIT_TROUBLE;
    if (WIFSIGNALED(audit->status))
        supervise_die(WTERMSIG(audit->status));
    return WEXITSTATUS(audit->status);
}

int lapse_audit(int argc, char **argv)
{
    struct request request = {0};
    struct audit audit = {0};
    int error = command_parse(&request.asked, argc, argv, false, TOP);

    if (error < 0) {
        lapse_audit_help();
        return 0;
    }
    if (!error)
        error = preload_find(request.library);
    if (!error && !audit_make(&audit, request.library))
        error = EXIT_TROUBLE;
    if (!error)
        error = command_output(&request.out, request.asked.output);
    if (error)
        return error;
    supervise_hold();
    error = run_command(&request, &audit);
    audit_tasks_free(&audit); /* of those that live on: what is known so far */
    supervise_release();
    if (error)
        return error;
    print(&request, &audit);
    audit_findings_free(&audit);
    symbols_free();
    return verdict(&audit);
}
