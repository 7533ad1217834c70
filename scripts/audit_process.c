/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who makes a call, and was anybody told? A call that a hook published is made
 * from the text of the shim: the address says so. Before the shim has patched
 * its process (FRESH), the loader is at work, and what it releases cannot have
 * been registered; a process in which the shim never shows up is another
 * matter: all that it releases is unseen.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit.h"

enum {
    SYSCALL_SIZE = 2, /* bytes of syscall, and of int $0x80 */
    LOOKS = 4         /* how often a fresh process is searched for the shim */
};

struct text {
    uint64_t start, end, offset;
    char *path; /* NULL: no file, no name */
};

struct process {
    pid_t pid;
    unsigned tasks;
    bool announced; /* by its parent */
    /* INHERITS: its parent has not told us yet that it forked. */
    enum { INHERITS, FRESH, READY } state;
    bool shim;               /* is mapped */
    unsigned looks;          /* for it */
    uint64_t start, end;     /* of its text, from READY on */
    uint64_t early;          /* releases while FRESH */
    char *program;           /* path; NULL: not looked up yet */
    struct text *texts;      /* executable mappings, as far as known */
    size_t texts_count;
};

struct audit_task {
    struct audit_task *next;
    pid_t tid;
    bool ended; /* before its parent announced it */
    struct process *process;
};

struct audit_tasks {
    struct audit_task **bucket;
    size_t buckets; /* a power of two */
    size_t count;
};

static void texts_drop(struct process *p)
{
    for (size_t i = 0; i < p->texts_count; i++)
        free(p->texts[i].path);
    free(p->texts);
    p->texts = NULL;
    p->texts_count = 0;
}

static const char *program_of(struct process *p)
{
    char name[32], path[PATH_MAX];
    ssize_t length;

    if (p->program)
        return p->program;
    snprintf(name, sizeof(name), "/proc/%d/exe", (int)p->pid);
    length = readlink(name, path, sizeof(path) - 1);
    path[length > 0 ? length : 0] = 0;
    if (length > 0)
        p->program = strdup(path);
    return p->program ? p->program : "?";
}

/* This image of the process is no more. */
static void image_end(struct audit *audit, struct process *p)
{
    if (p->state == FRESH && !p->shim)
        audit_find_blind(audit, program_of(p), p->early);
    texts_drop(p);
    free(p->program);
    p->program = NULL;
    p->state = FRESH;
    p->shim = false;
    p->looks = 0;
    p->start = p->end = 0;
    p->early = 0;
}

/* Tasks by number. */

pid_t audit_task_id(const struct audit_task *task)
{
    return task->tid;
}

bool audit_tasks_make(struct audit *audit)
{
    struct audit_tasks *tasks = calloc(1, sizeof(*tasks));

    if (!tasks)
        return false;
    tasks->buckets = 256;
    tasks->bucket = calloc(tasks->buckets, sizeof(*tasks->bucket));
    audit->tasks = tasks;
    return tasks->bucket;
}

static struct audit_task **task_link(struct audit_tasks *tasks, pid_t tid)
{
    struct audit_task **link =
        &tasks->bucket[(size_t)tid & (tasks->buckets - 1)];

    while (*link && (*link)->tid != tid)
        link = &(*link)->next;
    return link;
}

static void tasks_grow(struct audit_tasks *tasks)
{
    size_t buckets = 2 * tasks->buckets;
    struct audit_task **old = tasks->bucket;
    struct audit_task **fresh = calloc(buckets, sizeof(*fresh));

    if (!fresh)
        return; /* slower, that is all */
    for (size_t i = 0; i < tasks->buckets; i++) {
        while (old[i]) {
            struct audit_task *task = old[i];
            size_t at = (size_t)task->tid & (buckets - 1);

            old[i] = task->next;
            task->next = fresh[at];
            fresh[at] = task;
        }
    }
    free(old);
    tasks->bucket = fresh;
    tasks->buckets = buckets;
}

/* The process of a thread; 0 when there is no such thread any more. */
static pid_t leader_of(pid_t tid)
{
    char name[32], line[128];
    int pid = 0;
    FILE *file;

    snprintf(name, sizeof(name), "/proc/%d/status", (int)tid);
    file = fopen(name, "re");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "Tgid: %d", &pid) == 1)
            break;
    if (file)
        fclose(file);
    return pid;
}

static struct process *process_of(struct audit *audit, pid_t tid)
{
    pid_t pid = leader_of(tid);
    struct audit_task *leader = NULL;
    struct process *process;

    if (!pid)
        pid = tid;
    if (pid != tid)
        leader = audit_task_get(audit, pid);
    if (leader)
        return leader->process;
    process = calloc(1, sizeof(*process));
    if (!process)
        return NULL;
    process->pid = pid;
    process->announced = pid == audit->command;
    audit->processes++;
    return process;
}

static void task_free(struct audit_tasks *tasks, struct audit_task **link)
{
    struct audit_task *task = *link;

    *link = task->next;
    tasks->count--;
    if (!--task->process->tasks)
        free(task->process);
    free(task);
}

struct audit_task *audit_task_get(struct audit *audit, pid_t tid)
{
    struct audit_tasks *tasks = audit->tasks;
    struct audit_task **link = task_link(tasks, tid), *task = *link;

    if (task && task->ended) { /* the number is another's now */
        task_free(tasks, link);
        task = NULL;
    }
    if (task)
        return task;
    task = calloc(1, sizeof(*task));
    if (task)
        task->process = process_of(audit, tid);
    if (!task || !task->process) {
        free(task);
        audit->memory = true;
        return NULL;
    }
    task->tid = tid;
    task->process->tasks++;
    if (tasks->count++ >= tasks->buckets)
        tasks_grow(tasks);
    link = &tasks->bucket[(size_t)tid & (tasks->buckets - 1)];
    task->next = *link;
    *link = task;
    return task;
}

void audit_task_drop(struct audit *audit, pid_t tid)
{
    struct audit_task **link = task_link(audit->tasks, tid), *task = *link;

    if (!task || task->ended)
        return;
    if (task->process->tasks == 1) {
        image_end(audit, task->process);
        if (!task->process->announced) {
            task->ended = true;
            return;
        }
    }
    task_free(audit->tasks, link);
}

void audit_tasks_free(struct audit *audit)
{
    struct audit_tasks *tasks = audit->tasks;

    for (size_t i = 0; tasks && tasks->bucket && i < tasks->buckets; i++)
        while (tasks->bucket[i]) {
            tasks->bucket[i]->process->announced = true;
            tasks->bucket[i]->ended = false;
            audit_task_drop(audit, tasks->bucket[i]->tid);
        }
    if (tasks)
        free(tasks->bucket);
    free(tasks);
    audit->tasks = NULL;
}

void audit_task_forked(struct audit *audit, struct audit_task *task,
                       pid_t child)
{
    struct audit_task **link = task_link(audit->tasks, child), *other = *link;
    struct process *from = task->process, *to;

    if (other && other->ended) {
        task_free(audit->tasks, link);
        return;
    }
    if (!other && !leader_of(child))
        return; /* a thread, which has ended */
    other = audit_task_get(audit, child);
    if (!other || other->process == from)
        return;
    to = other->process;
    to->announced = true;
    if (to->state != INHERITS)
        return;
    to->state = from->state;
    to->shim = from->shim;
    to->start = from->start;
    to->end = from->end;
    if (from->program && !to->program)
        to->program = strdup(from->program);
}

void audit_task_executed(struct audit *audit, struct audit_task *task)
{
    image_end(audit, task->process);
    program_of(task->process); /* when it has ended, nobody can tell */
}

/* Where is the shim? */

struct search {
    const struct audit *audit;
    uint64_t address; /* in its text; 0: anywhere */
    struct process *process;
};

static bool is_shim(const struct audit_mapping *m, void *argument)
{
    struct search *search = argument;
    const struct audit *audit = search->audit;

    if (!m->executable ||
        (m->inode != audit->library_inode &&
         strcmp(m->path, audit->library)) ||
        (search->address && search->address - m->start >= m->end - m->start))
        return false;
    search->process->start = m->start;
    search->process->end = m->end;
    return true;
}

static bool find_shim(const struct audit *audit, struct process *p,
                      uint64_t address)
{
    struct search search = {audit, address, p};

    if (audit_maps_find(p->pid, is_shim, &search))
        p->shim = true;
    return p->shim;
}

static bool in_shim(const struct process *p, uint64_t address)
{
    return address - p->start < p->end - p->start;
}

/* What code is there? */

static bool add_text(const struct audit_mapping *m, void *argument)
{
    struct process *p = argument;
    struct text *more;

    if (!m->executable)
        return false;
    more = realloc(p->texts, (p->texts_count + 1) * sizeof(*more));
    if (!more)
        return true;
    p->texts = more;
    more[p->texts_count++] =
        (struct text){m->start, m->end, m->offset,
                      *m->path && strncmp(m->path, "[anon", 5)
                          ? strdup(m->path)
                          : NULL};
    return false;
}

static const struct text *text_at(const struct process *p, uint64_t address)
{
    for (size_t i = 0; i < p->texts_count; i++)
        if (address - p->texts[i].start <
            p->texts[i].end - p->texts[i].start)
            return &p->texts[i];
    return NULL;
}

/* Code that goes may be followed by other code at its address. */
static void forget_unmapped(struct process *p, const struct audit_call *call,
                            const uint64_t *arguments)
{
    uint64_t start, end;

    if (!p->texts || !audit_call_unmaps(call, arguments, &start, &end))
        return;
    for (size_t i = 0; i < p->texts_count; i++)
        if (start < p->texts[i].end && end > p->texts[i].start) {
            texts_drop(p);
            return;
        }
}

static void unseen(struct audit *audit, struct process *p,
                   const struct audit_call *call, uint64_t address)
{
    struct audit_finding finding = {.call = call, .pid = p->pid};
    const struct text *text = text_at(p, address);

    if (!text) {
        texts_drop(p);
        audit_maps_find(p->pid, add_text, p);
        text = text_at(p, address);
    }
    finding.program = (char *)program_of(p);
    finding.at = address;
    if (text && text->path) {
        finding.module = text->path;
        finding.at = address - text->start + text->offset;
    }
    audit_find(audit, &finding);
}

/* True when the process is ready, and this call to be judged. */
static bool settle(const struct audit *audit, struct process *p,
                   const struct audit_call *call, const uint64_t *arguments,
                   uint64_t address)
{
    if (p->state == INHERITS)
        p->state = find_shim(audit, p, 0) ? READY : FRESH;
    if (p->state == READY)
        return true;
    if (p->looks < LOOKS && !p->shim) {
        p->looks++;
        find_shim(audit, p, 0);
    }
    if (audit_call_is_sign(call, arguments) && find_shim(audit, p, address) &&
        in_shim(p, address)) {
        p->state = READY;
        p->early = 0;
        return true;
    }
    return false;
}

void audit_task_called(struct audit *audit, struct audit_task *task,
                       const struct audit_call *call,
                       const uint64_t *arguments, uint64_t address)
{
    struct process *p = task->process;
    bool ready;

    address -= SYSCALL_SIZE;
    if (audit_call_is_uring(call)) {
        audit->uring = true;
        return;
    }
    ready = settle(audit, p, call, arguments, address);
    if (ready && in_shim(p, address)) {
        audit->seen++;
    } else if (!call->releases || call->releases(p->pid, arguments)) {
        if (ready)
            unseen(audit, p, call, address);
        else
            p->early++;
    }
    forget_unmapped(p, call, arguments);
}
