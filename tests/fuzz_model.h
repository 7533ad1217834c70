/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What fuzz_api.c holds the library to: what each subscriber watches, and what
 * waits for it, as one thread alone can know it. Nothing here calls the
 * library.
 */
#ifndef FUZZ_MODEL_H
#define FUZZ_MODEL_H

#include "api.h"

#define PAGES 800  /* a border of 2 MiB lies behind the 200th */
#define BORDER 200
#define SUBS 8     /* the last one is a CALLBACK one and stays */
#define RECORDS 64 /* LAPSE_RECORDS: full soon */

struct item {
    uintptr_t addr, len;
    uint32_t reason;
    bool open;
};
struct list {
    struct item item[RECORDS + 1];
    size_t n;
};
/* What a subscriber is known to be. */
static struct sub {
    lapse_handle h;
    bool live, all, keep;
    uint32_t delivery, reasons;
    uint16_t count[PAGES];       /* watches */
    struct list queue, backlog;  /* POLL */
    bool flagged, held;
    enum { NONE, DUE, TOLD } overflow;
    unsigned long calls, calls_due;                  /* INLINE */
    bool due[PAGES];                                 /* CALLBACK */
    /* any thread: */
    _Atomic bool may[PAGES], told[PAGES], told_all, not_allowed;
} subs[SUBS];
static char *arena;
static unsigned long releases, overflows;

static bool watches(struct sub *s, uintptr_t addr, size_t len)
{
    size_t first = (addr - (uintptr_t)arena) / PAGE;
    size_t last = (addr + len - 1 - (uintptr_t)arena) / PAGE;

    if (s->all)
        return true;
    for (size_t i = first; i <= last; i++)
        if (s->count[i])
            return true;
    return false;
}

/* queue_collapse: what is open stays. */
static void collapse(struct sub *s)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->queue.n; i++)
        if (s->queue.item[i].open)
            s->queue.item[kept++] = s->queue.item[i];
    s->queue.n = kept;
    s->flagged = true;
    overflows++;
}

struct one {
    uintptr_t addr, len;
    uint32_t reason;
    uint32_t blind;    /* bit: subscriber */
};

static void begin(struct one *r, void *p, size_t len, uint32_t reason)
{
    *r = (struct one){(uintptr_t)p, len, reason, 0};
    releases++;
    for (unsigned i = 0; i < SUBS; i++) {
        struct sub *s = &subs[i];
        size_t first = ((uintptr_t)p - (uintptr_t)arena) / PAGE;
        size_t last = ((uintptr_t)p + len - 1 - (uintptr_t)arena) / PAGE;

        if (!s->live || !(s->reasons >> reason & 1) ||
            !watches(s, r->addr, len))
            continue;
        if (s->delivery == LAPSE_INLINE) {
            s->calls_due += 2;
        } else if (s->delivery == LAPSE_CALLBACK) {
            for (size_t k = first; k <= last; k++)
                s->due[k] = true;
        } else if (s->queue.n + s->backlog.n == RECORDS) {
            r->blind |= 1u << i;
            collapse(s);
        } else {
            s->queue.item[s->queue.n++] =
                (struct item){r->addr, len, reason, true};
        }
    }
}

static void end(struct one *r)
{
    for (unsigned i = 0; i < SUBS; i++) {
        struct sub *s = &subs[i];

        if (r->blind >> i & 1)
            collapse(s);
        for (size_t k = 0; k < s->queue.n; k++)
            if (s->queue.item[k].addr == r->addr &&
                s->queue.item[k].reason == r->reason)
                s->queue.item[k].open = false;
    }
}

/* Before the real call: a drainer may be quick. */
static void may_tell(void *p, size_t len, uint32_t reason)
{
    size_t first = ((uintptr_t)p - (uintptr_t)arena) / PAGE;
    size_t last = ((uintptr_t)p + len - 1 - (uintptr_t)arena) / PAGE;

    for (unsigned i = 0; i < SUBS; i++)
        if (subs[i].live && (subs[i].reasons >> reason & 1) &&
            watches(&subs[i], (uintptr_t)p, len))
            for (size_t k = first; k <= last; k++) {
                subs[i].may[k] = true;
                subs[i].told[k] = false;
            }
}

static void model_take(struct sub *s)
{
    if (!s->queue.n && !s->flagged)
        return;
    s->held = true;
    if (s->flagged)
        s->overflow = DUE;
    s->flagged = false;
    for (size_t i = 0; i < s->queue.n; i++)
        s->backlog.item[s->backlog.n++] = s->queue.item[i];
    s->queue.n = 0;
}

#endif
