/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests/step.c: what is different where a trace is kept, with stacks. */
#ifndef LAPSE_TESTS_STEP_TRACE_H
#define LAPSE_TESTS_STEP_TRACE_H

#include <fcntl.h>
#include <sys/stat.h>

#include "api.h"
#include "trace_ring.h"

#define STEP_WORDS 5

static const char *step_dir; /* NULL: no trace is kept */
static lapse_event_type step_type;

/* Data that cannot be whole by chance. */
static size_t step_encode(void *buffer, size_t room, const void *event)
{
    uint64_t *word = buffer, n = *(const uint64_t *)event;

    (void)room;
    for (unsigned i = 0; i < STEP_WORDS; i++)
        word[i] = n * (i + 1);
    return STEP_WORDS * sizeof(*word);
}

static bool step_write(uint64_t n)
{
    return lapse_event_write(step_type, &n) == 0;
}

static void step_name(char *name, size_t room, pid_t pid)
{
    snprintf(name, room, "%s/%d.0.trace", step_dir, (int)pid);
}

/* A forked child leaves a file. */
static void step_forget(pid_t pid)
{
    char name[96];

    if (!step_dir)
        return;
    step_name(name, sizeof(name), pid);
    unlink(name);
}

struct step_seen {
    uint64_t events, torn, stacks;
};

static void step_look(unsigned ring, const struct trace_record *r, void *arg)
{
    const struct trace_user *u = (const struct trace_user *)r;
    const uint64_t *word = (const uint64_t *)(u + 1);
    struct step_seen *s = arg;

    (void)ring;
    s->stacks += r->kind == TRACE_RELEASE && r->flags & TRACE_HAS_STACK;
    if (r->kind != TRACE_USER)
        return;
    s->events++;
    s->torn += u->len != STEP_WORDS * sizeof(*word);
    for (unsigned i = 0; i < STEP_WORDS; i++)
        s->torn += word[i] != word[0] * (i + 1);
}

/* Of a program that is over: all rings are whole, and each event there; but
 * for as many as `before` that its parent may have instead. */
static bool step_trace_good(pid_t pid, uint64_t events, uint64_t before,
                            bool releases)
{
    const struct trace_header *h;
    struct step_seen s = {0};
    bool whole = true, good;
    uint64_t first;
    char name[96];
    struct stat st;
    int fd;

    if (!step_dir)
        return true;
    step_name(name, sizeof(name), pid);
    fd = open(name, O_RDONLY | O_CLOEXEC);
    need(fd >= 0 && !fstat(fd, &st), name);
    h = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    need(h != MAP_FAILED, name);
    for (uint32_t i = 0; i < h->rings; i++)
        whole &= trace_ring_each(h, i, step_look, &s, &first);
    whole &= !h->lost && !h->stackless;
    good = whole && !s.torn && s.events <= events &&
           s.events + before >= events && (!releases || s.stacks);
    if (!good)
        printf("      trace: %lu events of %lu, %lu torn, %lu stacks, %lu "
               "lost, %lu stackless, %s\n",
               (unsigned long)s.events, (unsigned long)events,
               (unsigned long)s.torn, (unsigned long)s.stacks,
               (unsigned long)h->lost, (unsigned long)h->stackless,
               whole ? "whole" : "not whole");
    munmap((void *)(uintptr_t)h, (size_t)st.st_size);
    close(fd);
    unlink(name);
    return good;
}

/* The rest of this program, with a trace and without what it leaves. */
static inline int step_traced(char **argv)
{
    char dir[] = "/tmp/lapse-step-XXXXXX", command[64];
    int status;

    need(mkdtemp(dir) != NULL, "mkdtemp");
    setenv("LAPSE_TRACE", dir, 1);
    setenv("LAPSE_STACKS", "1", 1);
    setenv("LAPSE_TRACE_RING", "1024", 1);
    if (!fork()) {
        execv("/proc/self/exe", argv + 1);
        _exit(1);
    }
    wait(&status);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command) || !WIFEXITED(status) ? 1 : WEXITSTATUS(status);
}

static inline void step_trace_start(void)
{
    step_dir = getenv("LAPSE_TRACE");
    if (step_dir)
        need(!lapse_event_register("step", NULL, step_encode, &step_type),
             "lapse_event_register");
}

#endif
