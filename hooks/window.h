/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The window of a site: the one instruction that is to be replaced. May it?
 */
#ifndef LAPSE_WINDOW_H
#define LAPSE_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WINDOW_LIMIT 4096 /* bytes of a function that are looked at */

/* What decoding a function told, for its next site. Begins as {0}. */
struct window_memo {
    const uint8_t *begin;
    size_t size;
    size_t decoded; /* bytes, from its begin on */
    uint64_t starts[WINDOW_LIMIT / 64]; /* bytes that begin an instruction */
};

/*
 * Decode the function that begins at begin. size is that of the function if
 * it is known (whole), else of what may be looked at; the function's end is
 * found then. Checked: instructions begin at the window and behind it;
 * nothing in the function jumps into it, nor to the instruction behind it;
 * nobody reads the flags that were there before the site.
 * Returns NULL if the window may be replaced, else why not.
 */
const char *window_check(const uint8_t *begin, size_t size, bool whole,
                         const uint8_t *site);

/*
 * The same of a whole function, cheaper: where no byte of it can be a branch
 * into the window, however it is decoded, it is decoded only up to the site,
 * and once for all of its sites.
 */
const char *window_check_next(struct window_memo *memo, const uint8_t *begin,
                              size_t size, const uint8_t *site);

#endif
