/* SPDX-License-Identifier: BSD-3-Clause */
/* The threads that are traced, by their number, and whose they are. */
#include <stdlib.h>
#include <string.h>

#include "audit_process.h"

struct audit_tasks {
    struct audit_task **bucket;
    size_t buckets; /* a power of two */
    size_t count;
};

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
        audit->lost++;
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
        process_image_end(audit, task->process);
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
    process_image_end(audit, task->process);
    process_program(task->process); /* when it has ended, nobody can tell */
}
