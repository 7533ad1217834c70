/* SPDX-License-Identifier: BSD-3-Clause */
/* Backtraces of a hung child: with gdb, or else with libunwind. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libunwind-ptrace.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

#define FRAMES 24 /* of each thread: deeper ones are how it started */
#define STACKS_SECONDS 30

static const struct stack_request *find(const struct stack_request *requests,
                                        size_t n, pid_t tid)
{
    for (size_t i = 0; i < n; i++)
        if (requests[i].tid == tid)
            return &requests[i];
    return NULL;
}

static void print_title(const struct stack_request *request, pid_t tid)
{
    if (request)
        printf("  -- %s\n", request->title);
    else
        printf("  -- thread %d\n", (int)tid);
}

static pid_t gdb_start(pid_t pid, int out)
{
    char attach[16], command[48];
    pid_t gdb = fork();

    if (gdb)
        return gdb;
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(out, 1);
    dup2(null, 2);
    unsetenv("DEBUGINFOD_URLS"); /* no network, no waiting */
    alarm(STACKS_SECONDS);       /* lives on through exec */
    snprintf(attach, sizeof(attach), "%d", (int)pid);
    snprintf(command, sizeof(command), "thread apply all bt %d", FRAMES);
    execlp("gdb", "gdb", "-nx", "-batch", "-p", attach,
           "-ex", "set width 0", "-ex", "set print frame-arguments presence",
           "-ex", "set print address off",
           "-ex", command, (char *)NULL);
    _exit(127);
}

/* The sections of gdb's output that were asked for (n = 0: all); how many. */
static size_t gdb_print(FILE *in, const struct stack_request *requests,
                        size_t n)
{
    char line[1024];
    size_t shown = 0;
    bool showing = false;

    while (fgets(line, sizeof(line), in)) {
        const char *lwp = strstr(line, "(LWP ");
        if (!strncmp(line, "Thread ", 7) && lwp) {
            pid_t tid = atoi(lwp + 5);
            const struct stack_request *request = find(requests, n, tid);
            showing = request || n == 0;
            shown += showing;
            if (showing)
                print_title(request, tid);
        } else if (line[0] != '#') {
            showing = showing && line[0] == ' ';
        } else if (showing) {
            printf("     %.200s", line);
        }
    }
    return shown;
}

static size_t with_gdb(pid_t pid, const struct stack_request *requests,
                       size_t n)
{
    int ends[2];
    size_t shown = 0;

    if (pipe2(ends, O_CLOEXEC))
        return 0;
    pid_t gdb = gdb_start(pid, ends[1]);
    close(ends[1]);
    FILE *in = fdopen(ends[0], "r");
    if (in) {
        shown = gdb_print(in, requests, n);
        fclose(in);
    }
    if (gdb > 0)
        waitpid(gdb, NULL, 0);
    return shown;
}

static void unwind_thread(unw_addr_space_t space, pid_t tid)
{
    void *state = _UPT_create(tid);
    unw_cursor_t cursor;

    if (!state || unw_init_remote(&cursor, space, state) < 0)
        return;
    for (int i = 0; i < FRAMES; i++) {
        char name[128];
        unw_word_t ip = 0, offset = 0;
        unw_get_reg(&cursor, UNW_REG_IP, &ip);
        if (unw_get_proc_name(&cursor, name, sizeof(name), &offset) < 0)
            strcpy(name, "??");
        printf("     #%-2d 0x%lx in %s+%lu\n", i, (unsigned long)ip, name,
               (unsigned long)offset);
        if (unw_step(&cursor) <= 0)
            break;
    }
    _UPT_destroy(state);
}

/* Stopped and let go again one by one: in a hung process nothing moves. */
static bool with_libunwind(unw_addr_space_t space, pid_t tid,
                           const struct stack_request *request)
{
    if (ptrace(PTRACE_SEIZE, tid, NULL, NULL))
        return false;
    if (!ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) &&
        waitpid(tid, NULL, __WALL) == tid) {
        print_title(request, tid);
        unwind_thread(space, tid);
    }
    ptrace(PTRACE_DETACH, tid, NULL, NULL);
    return true;
}

void stacks_print(pid_t pid, const struct stack_request *requests, size_t n)
{
    char path[48];
    size_t shown = with_gdb(pid, requests, n);

    if (shown)
        return;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    unw_addr_space_t space = unw_create_addr_space(&_UPT_accessors, 0);
    for (struct dirent *d; dir && space && (d = readdir(dir));) {
        pid_t tid = atoi(d->d_name);
        const struct stack_request *request = find(requests, n, tid);
        if (tid > 0 && (request || n == 0))
            shown += with_libunwind(space, tid, request);
    }
    if (space)
        unw_destroy_addr_space(space);
    if (dir)
        closedir(dir);
    if (!shown)
        printf("  no backtraces: gdb gave none (installed?), and ptrace is "
               "not allowed\n");
}
