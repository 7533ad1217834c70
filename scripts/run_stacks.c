/* SPDX-License-Identifier: BSD-3-Clause */
/* The traces of a run: finding them, reading them, letting them go. */
#include "run_stacks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    AT_ONCE = 200,  /* records of one file before the next one's turn */
    FEW = 32,       /* files: looked for at each turn, more than that ... */
    LOOK_EACH = 16  /* ... at every such turn */
};

struct file {
    struct trace *trace; /* NULL: not begun, or done with */
    bool done;
    struct stacks stacks;
};

struct run_stacks {
    char dir[PATH_MAX];
    struct file **file;
    size_t count, room;
    unsigned turn;
};

struct run_stacks *run_stacks_open(const char *dir)
{
    struct run_stacks *r = calloc(1, sizeof(*r));

    if (r)
        snprintf(r->dir, sizeof(r->dir), "%s", dir);
    return r;
}

static struct file *file_of(const struct run_stacks *r, uint32_t pid,
                            uint64_t image)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->file[i]->stacks.pid == pid && r->file[i]->stacks.image == image)
            return r->file[i];
    return NULL;
}

static void file_name(const struct run_stacks *r, const struct file *f,
                      char *to, size_t room)
{
    snprintf(to, room, "%s/%" PRIu32 ".%" PRIu64 ".trace", r->dir,
             f->stacks.pid, f->stacks.image);
}

static void file_add(struct run_stacks *r, uint32_t pid, uint64_t image)
{
    struct file *f = calloc(1, sizeof(*f));

    if (f && r->count == r->room) {
        size_t room = r->room ? 2 * r->room : 16;
        struct file **more = realloc(r->file, room * sizeof(*more));

        if (more) {
            r->file = more;
            r->room = room;
        }
    }
    if (!f || r->count == r->room) {
        free(f);
        return;
    }
    f->stacks.pid = pid;
    f->stacks.image = image;
    r->file[r->count++] = f;
}

/* PID.N.trace */
static void look(struct run_stacks *r)
{
    DIR *list = opendir(r->dir);
    struct dirent *entry;

    while (list && (entry = readdir(list))) {
        uint32_t pid;
        uint64_t image;
        int end = 0;

        if (sscanf(entry->d_name, "%" SCNu32 ".%" SCNu64 ".trace%n", &pid,
                   &image, &end) == 2 &&
            end && !entry->d_name[end] && !file_of(r, pid, image))
            file_add(r, pid, image);
    }
    if (list)
        closedir(list);
}

/* Up to so many records. True: there may be more. */
static bool file_read(const struct run_stacks *r, struct file *f, size_t most)
{
    const struct trace_record *record;
    char name[PATH_MAX + 64];
    const char *why;
    unsigned ring;

    if (!f->trace) {
        file_name(r, f, name, sizeof(name));
        f->trace = trace_open(name, &why); /* not whole yet, perhaps */
    }
    for (size_t i = 0; f->trace && i < most; i++) {
        record = trace_next(f->trace, &ring);
        if (!record)
            return false;
        if (record->kind == TRACE_RELEASE)
            stacks_add(&f->stacks, f->trace, (const void *)record);
    }
    return f->trace;
}

/*
 * Memory of the file is given back when its process is gone: another empty
 * file takes its name, so that nobody else does.
 */
static void file_close(const struct run_stacks *r, struct file *f)
{
    char name[PATH_MAX + 64], empty[PATH_MAX + 64];
    int fd;

    f->done = true;
    f->stacks.none = !f->trace;
    if (!f->trace)
        return;
    trace_refresh(f->trace);
    f->stacks.overwritten = trace_overwritten(f->trace);
    f->stacks.lost = trace_head(f->trace)->lost;
    unwind_forget(f->trace);
    trace_close(f->trace);
    f->trace = NULL;
    file_name(r, f, name, sizeof(name));
    snprintf(empty, sizeof(empty), "%s/empty", r->dir);
    fd = open(empty, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    close(fd);
    if (rename(empty, name))
        unlink(empty);
}

/* Nobody writes into it any more: there is no such process, or it executed
 * another program. */
static bool is_over(const struct run_stacks *r, const struct file *f)
{
    return (kill((pid_t)f->stacks.pid, 0) && errno == ESRCH) ||
           file_of(r, f->stacks.pid, f->stacks.image + 1);
}

static void let_go(struct run_stacks *r)
{
    for (size_t i = 0; i < r->count; i++) {
        struct file *f = r->file[i];

        if (f->done || !is_over(r, f))
            continue;
        while (file_read(r, f, AT_ONCE))
            ;
        file_close(r, f);
    }
}

bool run_stacks_read(struct run_stacks *r)
{
    bool more = false;

    if (r->count < FEW || r->turn++ % LOOK_EACH == 0) {
        look(r);
        let_go(r);
    }
    for (size_t i = 0; i < r->count; i++)
        if (!r->file[i]->done)
            more |= file_read(r, r->file[i], AT_ONCE);
    return more;
}

/* One that lives on might write as fast as we read. */
void run_stacks_end(struct run_stacks *r)
{
    enum { MOST = 1000000 };

    look(r);
    for (size_t i = 0; i < r->count; i++) {
        struct file *f = r->file[i];

        if (f->done)
            continue;
        file_read(r, f, MOST);
        file_close(r, f);
    }
    for (size_t i = 0; i < r->count; i++)
        stacks_sort(&r->file[i]->stacks);
    unwind_free();
}

const struct stacks *run_stacks_of(const struct run_stacks *r, uint32_t pid,
                                   uint64_t image)
{
    static const struct stacks none = {.none = true};
    const struct file *f = file_of(r, pid, image);

    return f ? &f->stacks : &none;
}

void run_stacks_free(struct run_stacks *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->count; i++) {
        stacks_free(&r->file[i]->stacks);
        free(r->file[i]);
    }
    free(r->file);
    free(r);
    stacks_strings_free();
}
