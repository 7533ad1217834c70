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
#include "run_stacks.h"
#include "supervise.h"
#include "symbols.h"

enum { TOP = 5 };

struct run {
    struct command_request request;
    FILE *out;
    char library[PATH_MAX];
    char dir[PATH_MAX];
    char traces[PATH_MAX]; /* in it; "": no stacks are wanted */
    struct run_stacks *stacks;
    struct inspection program;
};

void lapse_run_help(void)
{
    fputs("Usage: lapse run [OPTION...] [--] COMMAND [ARGUMENT...]\n"
          "Runs COMMAND and reports what memory it released, by which path, "
          "by whom, and\nhow much of it under the lock of an allocator or of "
          "the loader.\n\n"
          "  --free         count what free() and its like free, too\n"
          "  --stacks[=KB]  and the stacks of the releases, copied up to KB "
          "KB (default 16)\n"
          "  --json         the report as JSON\n"
          "  --output FILE  the report goes to FILE, not to standard error\n"
          "  --top N        list N callers of each process (default 5; with "
          "--json: all)\n"
          "  --help         say this\n\n"
          "The exit status is that of COMMAND; 2, 125, 126 and 127 can be "
          "ours: lapse(1).\n",
          stdout);
}

/* Traces of stacks are written fast: where nothing goes to a disk. */
static const char *where(const struct run *run)
{
    const char *tmp = getenv("TMPDIR");

    if (tmp && *tmp)
        return tmp;
    return run->request.stacks && !access("/dev/shm", W_OK | X_OK) ? "/dev/shm"
                                                                   : "/tmp";
}

static bool make_traces(struct run *run)
{
    if (!run->request.stacks)
        return true;
    snprintf(run->traces, sizeof(run->traces), "%.*s/traces", PATH_MAX - 16,
             run->dir);
    run->stacks = run_stacks_open(run->traces);
    return run->stacks && !mkdir(run->traces, 0700);
}

static int make_dir(struct run *run)
{
    const char *tmp = where(run);
    char base[PATH_MAX - 64];
    char *full;

    /* Absolute, as the command may change its directory. */
    full = realpath(tmp, NULL);
    if (full && strlen(full) < sizeof(base)) {
        strcpy(base, full);
        snprintf(run->dir, sizeof(run->dir), "%s/lapse.XXXXXX", base);
        free(full);
        if (mkdtemp(run->dir) && make_traces(run))
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

/* While the command runs. */
struct collector {
    struct onlooker onlooker;
    struct run_stacks *stacks;
};

static int collect(struct onlooker *onlooker)
{
    enum { PAUSE = 2 }; /* ms; a ring with 16 KB stacks has 255 of them */

    return run_stacks_read(((struct collector *)onlooker)->stacks) ? 0
                                                                    : PAUSE;
}

static void ask_for_stacks(const struct run *run)
{
    char kb[16];

    snprintf(kb, sizeof(kb), "%u", run->request.stacks);
    setenv("LAPSE_STACKS", kb, 1);
    setenv("LAPSE_TRACE", run->traces, 1);
}

static int run_command(struct run *run, int *status)
{
    struct collector collector = {{.idle = collect}, run->stacks};
    struct preload_environment environment;
    int error = EXIT_TROUBLE;

    run->program = inspect(run->request.command[0]);
    if (run->program.blind)
        say("'%s' %s: lapse cannot see what it releases; running it all the "
            "same",
            run->request.command[0], run->program.blind);
    if (run->request.free)
        setenv("LAPSE_FREE", "1", 1);
    if (run->stacks)
        ask_for_stacks(run);
    if (!preload_environment_make(&environment, run->library, run->dir,
                                  run->program.asan)) {
        say("out of memory");
    } else {
        error = supervise(run->request.command, environment.all,
                          run->stacks ? &collector.onlooker : NULL, status);
        if (error)
            error = command_not_run(run->request.command[0], error);
    }
    preload_environment_free(&environment);
    return error;
}

static void read_all(struct run *run, struct reports *reports)
{
    reports_read(reports, run->dir);
    if (!run->stacks)
        return;
    run_stacks_end(run->stacks);
    for (size_t i = 0; i < reports->count; i++)
        reports->process[i].stacks =
            run_stacks_of(run->stacks, reports->process[i].pid,
                          reports->process[i].image);
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
        read_all(&run, &reports);
    if (*run.traces)
        remove_dir(run.traces);
    remove_dir(run.dir);
    supervise_release();
    if (error)
        return error;
    print(&run, &reports, status);
    reports_free(&reports);
    run_stacks_free(run.stacks);
    symbols_free();
    if (WIFSIGNALED(status))
        supervise_die(WTERMSIG(status));
    return WEXITSTATUS(status);
}
