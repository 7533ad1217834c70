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
static bool write_mark(struct oracle *o, unsigned page, const char *word)
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

bool oracle_open(struct oracle *o, char *addr, unsigned pages)
{
    memset(o, 0, sizeof(*o));
    o->addr = addr;
    o->pages = pages;
    o->sink = memfd_create("lapse-oracle", MFD_CLOEXEC);
    if (o->sink < 0 || pipe2(o->mark_pipe, O_CLOEXEC) ||
        pipe2(o->sink_pipe, O_CLOEXEC))
        return false;
    o->has_ring = !uring_open(&o->ring);
    return true;
}

void oracle_mark_all(struct oracle *o, const char *word)
{
    o->marked = 0;
    for (unsigned i = 0; i < o->pages; i++)
        if (write_mark(o, i, word))
            o->marked |= 1ull << i;
}

bool oracle_hold(struct oracle *o)
{
    o->held = oracle_mapped(o->addr, o->pages) & o->marked;
    o->by = 0;
    if (o->has_ring && oracle_uring_hold(o))
        o->by = ORACLE_URING;
    else if (oracle_pipe_hold(o))
        o->by = ORACLE_PIPE;
    else
        return false;
    /* After they are held: that may move a page first. */
    if (oracle_frames(o->addr, o->pages, o->frame))
        o->by |= ORACLE_PAGEMAP;
    return true;
}

bool oracle_read(struct oracle *o, unsigned page, char *content)
{
    if (!(o->held >> page & 1))
        return false;
    if (o->by & ORACLE_URING)
        return oracle_uring_read(o, page, content);
    return oracle_pipe_read(o, content);
}

void oracle_let_go(struct oracle *o)
{
    char content[PAGE_BYTES];

    if (o->by & ORACLE_URING)
        uring_forget_buffers(&o->ring);
    else
        while (o->held) {
            if (!oracle_pipe_read(o, content))
                break;
            o->held &= o->held - 1;
        }
    o->held = 0;
    o->by = 0;
}

static void second_opinion(struct oracle *o, struct oracle_verdict *v)
{
    uint64_t now[PAGES_MAX];

    if (!(o->by & ORACLE_PAGEMAP) || !oracle_frames(o->addr, o->pages, now))
        return;
    for (unsigned i = 0; i < o->pages; i++) {
        uint64_t bit = 1ull << i;

        if (v->judged & o->marked & bit && o->frame[i] && now[i] &&
            (o->frame[i] != now[i]) != !!(v->stale & bit))
            v->disagree |= bit;
    }
}

void oracle_judge(struct oracle *o, struct oracle_verdict *v)
{
    char content[PAGE_BYTES];

    memset(v, 0, sizeof(*v));
    oracle_mark_all(o, "new");
    for (unsigned i = 0; i < o->pages; i++) {
        uint64_t bit = 1ull << i;

        if (!oracle_read(o, i, content))
            continue;
        v->judged |= bit;
        if (!(o->marked & bit) || !oracle_marked(content, i, "new"))
            v->stale |= bit;
    }
    second_opinion(o, v);
}
