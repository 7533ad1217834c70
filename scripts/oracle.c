/* SPDX-License-Identifier: BSD-3-Clause */
#include "oracle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* In the middle of a page: allocators write at the ends of what is free. */
enum { MARK_AT = 2048, MARK_BYTES = 32 };

static void make_mark(char mark[MARK_BYTES], unsigned page, const char *word)
{
    memset(mark, 0, MARK_BYTES);
    snprintf(mark, MARK_BYTES, "lapse check %s %u", word, page);
}

/*
 * Through a pipe: the kernel copies, and says EFAULT where a store of ours
 * would be a SIGSEGV or, behind the end of a file, a SIGBUS.
 */
bool oracle_mark(struct oracle *o, unsigned page, const char *word)
{
    char mark[MARK_BYTES];
    char *at = o->addr + (size_t)page * PAGE_BYTES + MARK_AT;

    make_mark(mark, page, word);
    if (write(o->mark_pipe[1], mark, MARK_BYTES) != MARK_BYTES)
        return false;
    if (read(o->mark_pipe[0], at, MARK_BYTES) == MARK_BYTES)
        return true;
    return read(o->mark_pipe[0], mark, MARK_BYTES) < 0; /* empty it: false */
}

bool oracle_marked(const char *content, unsigned page, const char *word)
{
    char mark[MARK_BYTES];

    make_mark(mark, page, word);
    return !memcmp(content + MARK_AT, mark, MARK_BYTES);
}

uint64_t oracle_mapped(const char *addr, unsigned pages)
{
    uint64_t mapped = 0;
    unsigned char in_core;

    for (unsigned i = 0; i < pages; i++)
        if (!mincore((char *)addr + (size_t)i * PAGE_BYTES, PAGE_BYTES,
                     &in_core))
            mapped |= 1ull << i;
    return mapped;
}

bool oracle_hold(struct oracle *o, char *addr, unsigned pages)
{
    memset(o, 0, sizeof(*o));
    o->addr = addr;
    o->pages = pages;
    o->mapped = oracle_mapped(addr, pages);
    o->sink = memfd_create("lapse-oracle", MFD_CLOEXEC);
    if (o->sink < 0 || pipe2(o->mark_pipe, O_CLOEXEC) ||
        pipe2(o->sink_pipe, O_CLOEXEC))
        return false;
    for (unsigned i = 0; i < pages; i++)
        if (o->mapped >> i & 1 && !oracle_mark(o, i, "old"))
            o->mapped &= ~(1ull << i);
    o->has_ring = !uring_open(&o->ring);
    if (o->has_ring && oracle_uring_hold(o))
        o->by = ORACLE_URING;
    else if (oracle_pipe_hold(o))
        o->by = ORACLE_PIPE;
    /* After they are held: that may move a page first. */
    if (oracle_frames(addr, pages, o->frame))
        o->by |= ORACLE_PAGEMAP;
    return o->by & (ORACLE_URING | ORACLE_PIPE);
}

/* The held page, whose turn it is in the pipe. */
static bool read_held(struct oracle *o, unsigned page, char *content)
{
    if (o->by & ORACLE_URING)
        return oracle_uring_read(o, page, content);
    return oracle_pipe_read(o, content);
}

static void second_opinion(struct oracle *o, struct oracle_verdict *v,
                           uint64_t reached)
{
    uint64_t now[PAGES_MAX];

    if (!(o->by & ORACLE_PAGEMAP) || !oracle_frames(o->addr, o->pages, now))
        return;
    for (unsigned i = 0; i < o->pages; i++) {
        uint64_t bit = 1ull << i;

        if (v->judged & reached & bit && o->frame[i] && now[i] &&
            (o->frame[i] != now[i]) != !!(v->stale & bit))
            v->disagree |= bit;
    }
}

void oracle_judge(struct oracle *o, struct oracle_verdict *v)
{
    char content[PAGE_BYTES];
    uint64_t reached = 0;

    memset(v, 0, sizeof(*v));
    for (unsigned i = 0; i < o->pages; i++)
        if (oracle_mark(o, i, "new"))
            reached |= 1ull << i;
    for (unsigned i = 0; i < o->pages; i++) {
        uint64_t bit = 1ull << i;

        if (!(o->mapped & bit) || !read_held(o, i, content))
            continue;
        v->judged |= bit;
        if (!(reached & bit) || !oracle_marked(content, i, "new"))
            v->stale |= bit;
    }
    second_opinion(o, v, reached);
}
