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

#include "audit_process.h"

enum {
    SYSCALL_SIZE = 2, /* bytes of syscall, and of int $0x80 */
    LOOKS = 4         /* how often a fresh process is searched for the shim */
};

struct text {
    uint64_t start, end, offset;
    char *path; /* NULL: no file, no name */
};

static void texts_drop(struct process *p)
{
    for (size_t i = 0; i < p->texts_count; i++)
        free(p->texts[i].path);
    free(p->texts);
    p->texts = NULL;
    p->texts_count = 0;
}

const char *process_program(struct process *p)
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

void process_image_end(struct audit *audit, struct process *p)
{
    if (p->state == FRESH && !p->shim)
        audit_find_blind(audit, process_program(p), p->early);
    texts_drop(p);
    free(p->program);
    p->program = NULL;
    p->state = FRESH;
    p->shim = false;
    p->looks = 0;
    p->start = p->end = 0;
    p->early = 0;
}

/* Where is the shim? */

struct search {
    const struct audit *audit;
    uint64_t address; /* in its text; 0: anywhere */
    struct process *process;
};

/* Another root or file system may show another name, or another number. */
static bool is_library(const struct audit *audit,
                       const struct audit_mapping *m)
{
    static const char name[] = "/liblapse.so";
    const char *slash = strrchr(m->path, '/');

    return !strcmp(m->path, audit->library) ||
           (m->inode == audit->library_inode && slash &&
            !strncmp(slash, name, sizeof(name) - 1));
}

static bool is_shim(const struct audit_mapping *m, void *argument)
{
    struct search *search = argument;
    const struct audit *audit = search->audit;

    if (!m->executable || !is_library(audit, m) ||
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
    finding.program = (char *)process_program(p);
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
