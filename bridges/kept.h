/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory that jemalloc was told it is rid of (decommitted), and is not.
 *
 * Between jemalloc's call of decommit and that of commit a range is ours:
 * nobody else touches it. It is entered here, as resident (its pages are kept,
 * with their old contents) or not (they were given back and read as zeros).
 * Commit takes it out again.
 *
 * All of this runs inside jemalloc: no lock, no allocation, no waiting. An
 * entry is one word, and belongs to whoever sets its BUSY bit. Who finds that
 * set gives up, and jemalloc then does without the range for now.
 */
#ifndef LAPSE_KEPT_H
#define LAPSE_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEPT_MAX 4096
#define KEPT_OWNERS 2048

/*
 * Enter [start, end), of which nothing is entered yet. Nobody gives it back
 * before kept_publish; then `owner` is who is asked to. False when the table
 * is full.
 */
bool kept_reserve(uintptr_t start, uintptr_t end, unsigned owner,
                  bool resident);
/* What was reserved in the range counts, or never was. */
void kept_publish(uintptr_t start, uintptr_t end);
void kept_abandon(uintptr_t start, uintptr_t end);

struct kept_claim {
    uintptr_t start, end;
    size_t bytes;   /* of the range that are entered */
    unsigned spare; /* a slot for what lies behind the range, or KEPT_MAX */
    unsigned top;   /* slots before this one may be ours */
    uint64_t ours[KEPT_MAX / 64];
};
/* Claim what is entered in a range. False: somebody has a part of it, or no
 * slot is left; nothing is claimed then. */
bool kept_claim(struct kept_claim *c, uintptr_t start, uintptr_t end);
void kept_unclaim(struct kept_claim *c);
/* Out with it; with zero, what was resident is cleared. */
void kept_take(struct kept_claim *c, bool zero);
/* The first part at or after `from` of a claimed range that is not entered:
 * false when there is none. */
bool kept_gap(struct kept_claim *c, uintptr_t from, uintptr_t *start,
              uintptr_t *end);

enum kept_fate {
    KEPT_STILL,     /* the pages are there */
    KEPT_GONE,      /* they are not, and the range stays entered */
    KEPT_FORGOTTEN, /* nor does the range: jemalloc may go on thinking that it
                       is decommitted, commit knows better */
};
typedef enum kept_fate kept_purge(unsigned owner, uintptr_t addr, size_t len);

/*
 * Give back what is resident in at most `slots` slots and not watched by
 * anybody any more; of one owner, or of all (KEPT_OWNERS).
 * Returns bytes. Successive calls go round.
 */
size_t kept_sweep(unsigned slots, unsigned owner, kept_purge *purge);

struct kept_sum {
    size_t ranges, bytes; /* resident ones */
};
void kept_sum(struct kept_sum *out);

/* In the child nobody else is left: nothing is busy. */
void kept_fork_child(void);

#endif
