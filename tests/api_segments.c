/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which modules a forked child has in its trace: those that it has, whatever
 * its parent does to its own meanwhile, and be it forked in the middle of a
 * dlclose(). What is there and what is not is told by who loads them here.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/ptrace.h>
#include <sys/stat.h>

#include "api.h"
#include "shim/trace_file.h"

#define STAYS "libutil.so.1" /* small, and nobody has them */
#define COMES "libanl.so.1"

static char dir[] = "/tmp/lapse-segments-XXXXXX";
static int to_loader[2], from_loader[2];
static void *stays;

static const struct trace_header *map_file(pid_t pid)
{
    char name[96];
    struct stat st;
    void *map;
    int fd;

    snprintf(name, sizeof(name), "%s/%d.0.trace", getenv("LAPSE_TRACE"),
             (int)pid);
    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st))
        return NULL;
    map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    return map == MAP_FAILED ? NULL : map;
}

/* The last one of that name, or NULL. */
static const struct trace_segment *segment(pid_t pid, const char *name)
{
    const struct trace_header *h = map_file(pid);
    const struct trace_segment *found = NULL;
    size_t len = strlen(name);

    for (uint64_t at = 0; h && at < h->segments_len;) {
        const struct trace_segment *s =
            (const void *)((const char *)h + h->segments_at + at);
        size_t its = strlen(s->name);

        if (its >= len && !strcmp(s->name + its - len, name))
            found = s;
        at += s->bytes;
    }
    return found;
}

static bool is_there(const char *name)
{
    const struct trace_segment *s = segment(getpid(), name);

    return s && !s->unloaded;
}

static int exit_of(pid_t pid)
{
    int status = -1;

    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* --- the parent goes on while its child is yet to run --- */

static void *load_when_told(void *unused)
{
    char c;

    (void)unused;
    need(read(to_loader[0], &c, 1) == 1, "read");
    need(!dlclose(stays) && dlopen(COMES, RTLD_NOW), "dlopen");
    need(write(from_loader[1], &c, 1) == 1, "write");
    return NULL;
}

/* Its first thread is traced, forks and waits. */
static void program(void)
{
    pthread_t thread;
    pid_t pid;
    int got;

    stays = dlopen(STAYS, RTLD_NOW);
    need(stays != NULL, STAYS);
    need(!pthread_create(&thread, NULL, load_when_told, NULL), "a thread");
    if (ptrace(PTRACE_TRACEME, 0, 0, 0))
        _exit(77);
    raise(SIGSTOP);
    pid = fork();
    if (!pid)
        _exit(is_there(STAYS) << 1 | is_there(COMES));
    got = exit_of(pid);
    pthread_join(thread, NULL);
    _exit(got | is_there(STAYS) << 3 | is_there(COMES) << 2);
}

static void parent_goes_on(void)
{
    unsigned long child = 0;
    int status = 0, got;
    char c = 0;
    pid_t pid;

    need(!pipe(to_loader) && !pipe(from_loader), "pipe");
    pid = fork();
    if (!pid)
        program();
    need(waitpid(pid, &status, 0) == pid, "waitpid");
    if (!WIFSTOPPED(status)) {
        printf("skip: ptrace is refused here\n");
        exit(77);
    }
    need(!ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACEFORK) &&
             !ptrace(PTRACE_CONT, pid, 0, 0) &&
             waitpid(pid, &status, 0) == pid &&
             status >> 8 == (SIGTRAP | PTRACE_EVENT_FORK << 8) &&
             !ptrace(PTRACE_GETEVENTMSG, pid, 0, &child),
         "the fork");
    need(waitpid((pid_t)child, &status, __WALL) == (pid_t)child &&
             WIFSTOPPED(status),
         "the child");
    ptrace(PTRACE_DETACH, pid, 0, 0);
    need(write(to_loader[1], &c, 1) == 1 && read(from_loader[0], &c, 1) == 1,
         "the loader");
    ptrace(PTRACE_DETACH, (pid_t)child, 0, 0);
    got = exit_of(pid);
    check((got & 3) == 2, "a child has what it was forked with (%d)", got);
    check(got >> 2 == 1, "its parent has what it has (%d)", got);
}

/* --- forked by who is told that a module is gone --- */

static uintptr_t its_start;
static int got_there;

static void fork_inside(const struct lapse_event *e, void *unused)
{
    pid_t pid;

    (void)unused;
    if (!its_start || e->flags || !event_overlaps(e, (char *)its_start, PAGE))
        return;
    its_start = 0;
    pid = fork();
    if (!pid)
        _exit(is_there(STAYS) ? 1 : is_there("libc.so.6") ? 7 : 2);
    got_there = exit_of(pid);
}

static void in_the_middle(void)
{
    struct lapse_subscription how = {.size = sizeof(how),
                                     .delivery = LAPSE_INLINE,
                                     .flags = LAPSE_ALL,
                                     .callback = fork_inside};
    lapse_handle h;

    stays = dlopen(STAYS, RTLD_NOW);
    need(stays && is_there(STAYS), STAYS);
    need(!lapse_subscribe(&how, &h), "lapse_subscribe");
    its_start = segment(getpid(), STAYS)->start;
    dlclose(stays);
    lapse_unsubscribe(h);
    check(got_there == 7, "a child has not what was just unmapped (%d)",
          got_there);
    check(!is_there(STAYS), "nor has its parent then");
}

/* It is no file, and none may be taken for it. */
static void vdso(void)
{
    const struct trace_segment *s = segment(getpid(), "[vdso]");

    check(s && !strcmp(s->name, "[vdso]") &&
              s->start == getauxval(AT_SYSINFO_EHDR),
          "the vdso has its name");
    check(!segment(getpid(), "linux-vdso.so.1"), "and no other");
}

int main(int argc, char **argv)
{
    char command[64];
    int status;

    if (argc == 1) {
        need(mkdtemp(dir) != NULL, "mkdtemp");
        setenv("LAPSE_TRACE", dir, 1);
        if (!fork()) {
            execl("/proc/self/exe", argv[0], "traced", NULL);
            _exit(1);
        }
        wait(&status);
        snprintf(command, sizeof(command), "rm -rf %s", dir);
        return system(command) || !WIFEXITED(status) ? 1
                                                     : WEXITSTATUS(status);
    }
    if (getauxval(AT_SYSINFO_EHDR))
        vdso();
    in_the_middle();
    parent_goes_on();
    return api_end();
}
