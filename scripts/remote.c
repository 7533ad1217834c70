/* SPDX-License-Identifier: BSD-3-Clause */
#include "remote.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

/* The first line of a file of a task; false: it is gone, or not ours to read. */
static bool task_line(pid_t pid, pid_t tid, const char *name, char *line,
                      size_t room)
{
    char path[64];
    ssize_t got;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)pid, (int)tid,
             name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    got = read(fd, line, room - 1);
    close(fd);
    line[got > 0 ? got : 0] = 0;
    line[strcspn(line, "\n")] = 0;
    return got > 0;
}

/* Of a thread of the kernel it says zeros, which would be a read(). */
static void read_call(struct remote_call *call, const char *line)
{
    uint64_t sp = 0;
    int got = sscanf(line, "%ld %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64
                           " %" SCNx64 " %" SCNx64 " %" SCNx64, &call->nr,
                     &call->args[0], &call->args[1], &call->args[2],
                     &call->args[3], &call->args[4], &call->args[5], &sp);

    if (got < 1 || (got == 8 && !sp))
        call->nr = -1;
}

/* What /proc says of a thread while nobody disturbs it. */
static bool thread_look(pid_t pid, pid_t tid, struct remote_thread *t)
{
    char line[512], *close;

    *t = (struct remote_thread){.tid = tid, .state = '?', .call.nr = -1};
    if (!task_line(pid, tid, "comm", t->name, sizeof(t->name)))
        return false;
    if (task_line(pid, tid, "stat", line, sizeof(line)) &&
        (close = strrchr(line, ')')) && close[1])
        t->state = close[2];
    if (task_line(pid, tid, "syscall", line, sizeof(line)))
        read_call(&t->call, line);
    if (!task_line(pid, tid, "wchan", t->wchan, sizeof(t->wchan)) ||
        !strcmp(t->wchan, "0"))
        t->wchan[0] = 0;
    return true;
}

static int by_tid(const void *a, const void *b)
{
    const struct remote_thread *x = a, *y = b;

    return (x->tid > y->tid) - (x->tid < y->tid);
}

static int read_threads(struct remote *r)
{
    char path[48];
    struct dirent *entry;
    struct remote_thread t, *more;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)r->pid);
    dir = opendir(path);
    if (!dir)
        return errno == ENOENT ? ESRCH : errno;
    while ((entry = readdir(dir))) {
        pid_t tid = atoi(entry->d_name);

        if (tid <= 0 || !thread_look(r->pid, tid, &t))
            continue;
        more = reallocarray(r->thread, r->threads + 1, sizeof(t));
        if (!more) {
            closedir(dir);
            return ENOMEM;
        }
        r->thread = more;
        r->thread[r->threads++] = t;
    }
    closedir(dir);
    if (r->threads)
        qsort(r->thread, r->threads, sizeof(t), by_tid);
    return r->threads ? 0 : ESRCH;
}

/* A thread's number is good for its process. */
static pid_t leader_of(pid_t pid)
{
    char path[48], line[256];
    int leader = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    file = fopen(path, "re");
    if (!file)
        return 0;
    while (!leader && fgets(line, sizeof(line), file))
        sscanf(line, "Tgid: %d", &leader);
    fclose(file);
    return leader;
}

int remote_open(struct remote *r, pid_t pid)
{
    char path[48];
    int error;

    *r = (struct remote){.pid = leader_of(pid), .memory = -1};
    error = r->pid ? read_threads(r) : ESRCH;
    if (error) {
        say(error == ESRCH ? "there is no process %d"
                           : "cannot look at process %d",
            (int)pid);
        return error;
    }
    memcpy(r->name, r->thread[0].name, sizeof(r->name));
    r->task = r->pid;
    for (size_t i = r->threads; i-- > 0;)
        if (r->thread[i].state != 'Z' && r->thread[i].state != 'X')
            r->task = r->thread[i].tid;
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)r->task);
    r->memory = open(path, O_RDONLY | O_CLOEXEC);
    remote_maps_read(r);
    return 0;
}

void remote_close(struct remote *r)
{
    for (size_t i = 0; i < r->threads; i++)
        free(r->thread[i].frame);
    free(r->thread);
    while (r->modules) {
        struct remote_module *m = r->modules;

        r->modules = m->next;
        free(m->file);
        free(m);
    }
    if (r->memory >= 0)
        close(r->memory);
}

struct remote_thread *remote_find(struct remote *r, pid_t tid)
{
    for (size_t i = 0; i < r->threads; i++)
        if (r->thread[i].tid == tid)
            return &r->thread[i];
    return NULL;
}

bool remote_read(const struct remote *r, uint64_t address, void *to,
                 size_t size)
{
    return r->memory >= 0 && address <= INT64_MAX &&
           pread(r->memory, to, size, (off_t)address) == (ssize_t)size;
}
