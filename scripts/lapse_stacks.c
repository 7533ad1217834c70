/* SPDX-License-Identifier: BSD-3-Clause */
/* `lapse stacks`: where the threads of a process are, and who waits for whom. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "threads_print.h"
#include "symbols.h"

enum { TOP = 32 };

void lapse_stacks_help(void)
{
    fputs("Usage: lapse stacks [OPTION...] PID...\n"
          "Shows for each thread of a process that runs or hangs where it is "
          "(in a hook, a\ncallback, an allocator, the loader...), what it "
          "waits for and who holds that,\nand its stack.  The process need "
          "not run under lapse; its threads are stopped\none after the other, "
          "for less than a millisecond each.\n\n"
          "  --all-frames  whole stacks, not the first 32 frames of each\n"
          "  --json        as JSON\n"
          "  --thread TID  only that thread, and those that it waits for; may be "
          "repeated\n"
          "  --top N       the first N frames of each stack\n"
          "  --help        say this\n\n"
          "The exit status is 0, 2 for a wrong command line, 125 when a "
          "process or a thread\ncould not be looked at.\n",
          stdout);
}

static int number(const char *what, const char *text, unsigned long *value)
{
    char *end;

    errno = 0;
    *value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || *value > INT_MAX)
        return misuse("%s wants a number, not '%s'", what, text);
    return 0;
}

static int parse(struct stacks_request *request, int argc, char **argv)
{
    static const struct option options[] = {
        {"all-frames", no_argument, NULL, 'a'},
        {"json", no_argument, NULL, 'j'},
        {"thread", required_argument, NULL, 'd'},
        {"top", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    unsigned long value = 0;
    int letter;

    opterr = 0;
    optind = 1;
    while ((letter = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        switch (letter) {
        case 'a':
            request->top = SIZE_MAX;
            break;
        case 'j':
            request->json = true;
            break;
        case 'd':
            if (number("--thread", optarg, &value))
                return EXIT_USAGE;
            if (request->threads == STACKS_THREADS)
                return misuse("--thread can be given %d times",
                              STACKS_THREADS);
            request->thread[request->threads++] = (pid_t)value;
            break;
        case 't':
            if (number("--top", optarg, &value))
                return EXIT_USAGE;
            request->top = value;
            break;
        case 'h':
            return -1;
        default:
            return command_wrong_option(letter, argv);
        }
    }
    return argv[optind] ? 0 : misuse("no process was named");
}

static long status_of(pid_t pid, const char *what)
{
    char path[48], line[256], format[32];
    long value = -1;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    snprintf(format, sizeof(format), "%s: %%ld", what);
    file = fopen(path, "re");
    while (file && value < 0 && fgets(line, sizeof(line), file))
        sscanf(line, format, &value);
    if (file)
        fclose(file);
    return value;
}

static bool yama_restricts(void)
{
    FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    int scope = 0;

    if (file && fscanf(file, "%d", &scope) != 1)
        scope = 0;
    if (file)
        fclose(file);
    return scope > 0;
}

/* Why ptrace says EPERM, and what can be done. */
static void say_refused(const struct remote *r, const struct remote_thread *t)
{
    int tracer = (int)status_of(t->tid, "TracerPid");
    int pid = (int)r->pid;
    long owner = status_of(r->pid, "Uid");

    if (pid == getpid())
        say("process %d is this one: it cannot stop itself", pid);
    else if (tracer > 0)
        say("thread %d of process %d is traced by process %d already (a "
            "debugger, strace, lapse audit): end that, or ask it",
            (int)t->tid, pid, tracer);
    else if (geteuid() && owner >= 0 && owner != (long)geteuid())
        say("process %d is that of user %ld: run lapse stacks as that user, "
            "or as root", pid, owner);
    else if (geteuid() && yama_restricts())
        say("process %d may not be traced here: "
            "/proc/sys/kernel/yama/ptrace_scope allows only its parents: run "
            "lapse stacks as root", pid);
    else
        say("process %d may not be traced: %s; it may be setuid or have "
            "forbidden it (prctl PR_SET_DUMPABLE), or this may be a container "
            "without SYS_PTRACE: run lapse stacks as root, outside", pid,
            strerror(t->error));
}

/* 0, or EXIT_TROUBLE: some thread that lives could not be looked at. */
static int say_troubles(struct remote *r,
                        const struct stacks_request *request,
                        const bool *shown)
{
    int status = 0;
    bool refused = false;

    for (size_t i = 0; i < request->threads; i++)
        if (!remote_find(r, request->thread[i])) {
            say("process %d has no thread %d", (int)r->pid,
                (int)request->thread[i]);
            status = EXIT_TROUBLE;
        }

    for (size_t i = 0; i < r->threads; i++) {
        const struct remote_thread *t = &r->thread[i];

        if (!shown[i] || t->taken || t->state == 'Z' || t->error == ESRCH)
            continue;
        status = EXIT_TROUBLE;
        if (t->error && !refused)
            say_refused(r, t);
        refused |= t->error != 0;
    }
    return status;
}

/* *printed: how many processes were, until now. */
static int show(pid_t pid, const struct stacks_request *request,
                size_t *printed)
{
    struct remote r;
    bool *shown = NULL;
    int status = EXIT_TROUBLE;

    if (!remote_open(&r, pid) &&
        (shown = calloc(r.threads, sizeof(*shown)))) {
        stacks_choose(&r, request, shown);
        status = say_troubles(&r, request, shown);
        if (request->json && (*printed)++)
            putchar(',');
        if (request->json)
            threads_print_json(&r, request, shown, stdout);
        else
            threads_print(&r, request, shown, stdout);
    }
    free(shown);
    remote_close(&r);
    return status;
}

int lapse_stacks(int argc, char **argv)
{
    struct stacks_request request = {.top = TOP};
    unsigned long pid;
    size_t printed = 0;
    int status = parse(&request, argc, argv);

    if (status < 0) {
        lapse_stacks_help();
        return 0;
    }
    if (status)
        return status;
    for (int i = optind; i < argc; i++)
        if (number("lapse stacks", argv[i], &pid))
            return EXIT_USAGE;
    if (request.json)
        fputs("{\"version\":1,\"processes\":[", stdout);
    for (int i = optind; i < argc; i++) {
        number("lapse stacks", argv[i], &pid);
        if (show((pid_t)pid, &request, &printed))
            status = EXIT_TROUBLE;
    }
    if (request.json)
        fputs("]}\n", stdout);
    symbols_free();
    if (fflush(stdout) || ferror(stdout)) {
        say("the stacks could not be written in full: %s", strerror(errno));
        status = EXIT_TROUBLE;
    }
    return status;
}
