/* SPDX-License-Identifier: BSD-3-Clause */
/* `lapse run`: a program under the shim, and the report of what it released. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "inspect.h"
#include "preload.h"
#include "reports.h"
#include "supervise.h"
#include "symbols.h"

enum { TOP = 5 };

struct run {
    struct command_request request;
    FILE *out;
    char library[PATH_MAX];
    char dir[PATH_MAX];
    struct inspection program;
};

void lapse_run_help(void)
{
    fputs("Usage: lapse run [OPTION...] [--] COMMAND [ARGUMENT...]\n"
          "Runs COMMAND and reports what memory it released, by which path, "
          "by whom, and\nhow much of it under the lock of an allocator or of "
          "the loader.\n\n"
          "  --free         count what free() and its like free, too\n"
          "  --json         the report as JSON\n"
          "  --output FILE  the report goes to FILE, not to standard error\n"
          "  --top N        list N callers of each process (default 5; with "
          "--json: all)\n"
          "  --help         say this\n\n"
          "The exit status is that of COMMAND; 2, 125, 126 and 127 can be "
          "ours: lapse(1).\n",
          stdout);
}

static int make_dir(struct run *run)
{
    const char *tmp = getenv("TMPDIR");
    char base[PATH_MAX - 32];
    char *full;

    if (!tmp || !*tmp)
        tmp = "/tmp";
    /* Absolute, as the command may change its directory. */
    full = realpath(tmp, NULL);
    if (full && strlen(full) < sizeof(base)) {
        strcpy(base, full);
        snprintf(run->dir, sizeof(run->dir), "%s/lapse.XXXXXX", base);
        free(full);
        if (mkdtemp(run->dir))
            return 0;
    }
    say("cannot make a directory for the reports in '%s': %s; set TMPDIR to "
        "one that can be written to",
        tmp, strerror(errno));
    return EXIT_TROUBLE;
}

/* A process that lives on may make one more file while we are at it. */
static void remove_dir(const char *path)
{
    struct dirent *entry;
    DIR *dir;

    for (int attempt = 0; attempt < 5; attempt++) {
        dir = opendir(path);
        while (dir && (entry = readdir(dir)))
            if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
                unlinkat(dirfd(dir), entry->d_name, 0);
        if (dir)
            closedir(dir);
        if (!rmdir(path) || errno == ENOENT)
            return;
    }
    say("could not remove '%s': %s", path, strerror(errno));
}

static void print(const struct run *run, const struct reports *reports,
                  int status)
{
    if (!run->out)
        return;
    if (run->request.json)
        reports_print_json(reports, run->out, run->request.top,
                           run->request.command, status);
    else
        reports_print(reports, run->out, run->request.top);
    if (!reports->count && !reports->unreadable && !run->request.json) {
        if (run->program.blind)
            fprintf(run->out, "lapse: no report: '%s' %s\n",
                    run->request.command[0], run->program.blind);
        else
            fprintf(run->out,
                    "lapse: no report: no process of '%s' could be "
                    "seen inside (was LD_PRELOAD taken out of its "
                    "environment?)\n",
                    run->request.command[0]);
    }
    if (fflush(run->out) || ferror(run->out))
        say("the report could not be written in full: %s", strerror(errno));
    fclose(run->out);
}

static int run_command(struct run *run, int *status)
{
    struct preload_environment environment;
    int error = EXIT_TROUBLE;

    run->program = inspect(run->request.command[0]);
    if (run->program.blind)
        say("'%s' %s: lapse cannot see what it releases; running it all the "
            "same",
            run->request.command[0], run->program.blind);
    if (run->request.free)
        setenv("LAPSE_FREE", "1", 1);
    if (!preload_environment_make(&environment, run->library, run->dir,
                                  run->program.asan)) {
        say("out of memory");
    } else {
        error = supervise(run->request.command, environment.all, NULL, status);
        if (error)
            error = command_not_run(run->request.command[0], error);
    }
    preload_environment_free(&environment);
    return error;
}

int lapse_run(int argc, char **argv)
{
    struct run run = {0};
    struct reports reports = {0};
    int status = 0, error = command_parse(&run.request, argc, argv, true, TOP);

    if (error < 0) {
        lapse_run_help();
        return 0;
    }
    if (!error)
        error = preload_find(run.library);
    if (!error)
        error = command_output(&run.out, run.request.output);
    if (error)
        return error;
    supervise_hold();
    error = make_dir(&run);
    if (error)
        return error;
    error = run_command(&run, &status);
    if (!error)
        reports_read(&reports, run.dir);
    remove_dir(run.dir);
    supervise_release();
    if (error)
        return error;
    print(&run, &reports, status);
    reports_free(&reports);
    symbols_free();
    if (WIFSIGNALED(status))
        supervise_die(WTERMSIG(status));
    return WEXITSTATUS(status);
}
