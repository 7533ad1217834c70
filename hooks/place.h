/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A site on its way to being patched. Between site.c, which covers what has
 * one site in a function of its own, and site_file.c, which covers the rest.
 */
#ifndef LAPSE_PLACE_H
#define LAPSE_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hooks/arch.h"
#include "hooks/coverage.h"
#include "hooks/site.h"
#include "hooks/window.h"

/* Whose sites are patched, and who is told what became of them. */
struct target {
    const struct module *module;
    const struct patcher *patcher;
    const char *where;        /* of the rows; NULL: of one more libc */
    struct site_slots *slots; /* of that one */
    const char *why;          /* and why it is not covered in full */
};

/* A site on its way to being patched. */
struct place {
    const char *path; /* of the row */
    const char *name; /* of its function */
    enum arch_kind kind;
    int nr;
    hook_body *body;
    const uint8_t *code; /* where to look for it: its function, or all text */
    size_t size;
    const uint8_t *site;
    const uint8_t *entry; /* where its function begins, if that is known */
    unsigned found; /* sites like it in that code */
    enum lapse_mechanism mechanism;
    const char *detail; /* "", or with UNCOVERED why */
};

/* Rows of calls that change files, from HOOK_FILES on. */
#define FILE_ROWS (HOOK_OPEN - HOOK_FILES + 1)

/* hook NULL: syscall(). */
struct place place_of(const struct hook *hook);
void place_refuse(struct place *place, const char *why);

/* No site where there should be one: did somebody write over it? */
const char *place_missing(const struct place *place);

/* The next instruction that enters the kernel, or what looks like one. NULL
 * behind the last. */
const uint8_t *next_enter(const uint8_t *from, const uint8_t *end);

/* May the site be patched? place->code is its function, or all text that it
 * may be in. If not, it is refused. */
bool place_check_function(struct place *place, struct window_memo *memo);
bool place_check_text(struct place *place);

void place_patch(struct place *place, struct target *target);

/* Set the row, or remember why the libc is not covered in full. */
void place_finish(const struct place *place, struct target *target);

/* The calls that change files. */
void cover_files(struct target *target);

#endif
