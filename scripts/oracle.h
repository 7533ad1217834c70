/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Knows, without asking the library, whether memory went stale: whether an
 * address still reaches the physical page that it reached before.
 *
 * A page is held by the kernel on our behalf (as a fixed buffer of io_uring,
 * or in a pipe by vmsplice), as a device would hold it. Later a new mark is
 * written at the address. If the kernel's page still has the old one, it is
 * another page by now. For root, /proc/self/pagemap gives a second opinion.
 */
#ifndef ORACLE_H
#define ORACLE_H

#include <stdbool.h>
#include <stdint.h>

#include "uring.h"

enum { PAGE_BYTES = 4096, PAGES_MAX = 64 };
enum {
    ORACLE_URING = 1,  /* fixed buffers */
    ORACLE_PIPE = 2,   /* vmsplice */
    ORACLE_PAGEMAP = 4 /* frame numbers */
};

struct oracle {
    char *addr;
    unsigned pages;
    uint64_t marked; /* the last time: pages that could be written to */
    uint64_t held;
    unsigned by; /* ORACLE_*: who holds, who looks */
    struct uring ring;
    bool has_ring;
    int sink, sink_pipe[2], mark_pipe[2];
    uint64_t frame[PAGES_MAX];
};

/* One bit for each page. */
struct oracle_verdict {
    uint64_t judged;
    uint64_t stale;    /* another page now, or none that can be reached */
    uint64_t disagree; /* the frame number says otherwise */
};

/* False if there are no descriptors to be had. */
bool oracle_open(struct oracle *o, char *addr, unsigned pages);

/* Writes a mark at each page: not where there is nothing to write to. */
void oracle_mark_all(struct oracle *o, const char *word);

/* Holds what was marked; false if this machine has no way to. */
bool oracle_hold(struct oracle *o);
void oracle_let_go(struct oracle *o);

/* Writes new marks at the addresses, and looks which marks are held. */
void oracle_judge(struct oracle *o, struct oracle_verdict *verdict);

/* The page that is held; only once, from the first to the last. */
bool oracle_read(struct oracle *o, unsigned page, char *content);

/* Is this (the copy of) a page that has that mark? */
bool oracle_marked(const char *content, unsigned page, const char *word);

uint64_t oracle_mapped(const char *addr, unsigned pages);

/* The judges: hold o->held (true: all of it), read one page back. */
bool oracle_uring_hold(struct oracle *o);
bool oracle_uring_read(struct oracle *o, unsigned page, char *content);
bool oracle_pipe_hold(struct oracle *o);
bool oracle_pipe_read(struct oracle *o, char *content);
bool oracle_frames(const char *addr, unsigned pages, uint64_t *frame);

#endif
