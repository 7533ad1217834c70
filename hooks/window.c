/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decoding around a site. A window is one instruction that becomes another
 * one of the same length, so that no thread can stand inside. That holds only
 * if it is where one instruction begins and the next one follows, and if
 * nothing jumps to the middle.
 */
#include "hooks/window.h"

#include "hooks/arch.h"

/* The flags at the site are lost in an entry: does anybody want them? */
static bool flags_dead(const uint8_t *code, const uint8_t *end)
{
    struct arch_insn insn;

    while (code < end && arch_decode(code, (size_t)(end - code), &insn)) {
        if (insn.flags != ARCH_FLAGS_KEPT)
            return insn.flags == ARCH_FLAGS_DEAD;
        code += insn.size;
    }
    return false;
}

static bool targets_window(uintptr_t target, const uint8_t *site)
{
    /* To its first byte is fine. To the system call itself would miss us. */
    return target > (uintptr_t)site && target < (uintptr_t)site + ARCH_SITE;
}

const char *window_check(const uint8_t *begin, size_t size, bool whole,
                         const uint8_t *site)
{
    const uint8_t *end = begin + size;
    const uint8_t *at = begin;
    uintptr_t furthest = (uintptr_t)site + ARCH_SITE;
    bool site_seen = false, enter_seen = false;
    struct arch_insn insn;

    if (size > WINDOW_LIMIT)
        return "its function is too long to be checked";
    if (site < begin || site + ARCH_SITE > end)
        return "its site is outside of its function";
    while (at < end) {
        if (!arch_decode(at, (size_t)(end - at), &insn))
            return "its function cannot be decoded";
        if (at == site)
            site_seen = insn.size == ARCH_WINDOW;
        if (at == site + ARCH_WINDOW)
            enter_seen = insn.size == ARCH_ENTER;
        if (insn.target && targets_window(insn.target, site))
            return "its function jumps into the site";
        at += insn.size;
        if (!insn.calls && insn.target > furthest &&
            insn.target < (uintptr_t)end)
            furthest = insn.target;
        if (!whole && insn.ends && (uintptr_t)at > furthest)
            break;
    }
    if (!site_seen || !enter_seen)
        return "its instructions do not begin where the site does";
    if (!flags_dead(site + ARCH_SITE, end))
        return "flags may be in use behind the site";
    return NULL;
}

/* Decode on to behind the site. False: it cannot be decoded. */
static bool decode_up_to(struct window_memo *memo, const uint8_t *begin,
                         size_t size, const uint8_t *site)
{
    size_t limit = (size_t)(site + ARCH_SITE - begin);
    struct arch_insn insn;

    if (memo->begin != begin || memo->size != size)
        *memo = (struct window_memo){.begin = begin, .size = size};
    for (; memo->decoded <= limit; memo->decoded += insn.size) {
        size_t at = memo->decoded;

        if (!arch_decode(begin + at, size - at, &insn))
            return false;
        memo->starts[at / 64] |= (uint64_t)1 << at % 64;
    }
    return true;
}

static bool starts(const struct window_memo *memo, const uint8_t *at)
{
    size_t offset = (size_t)(at - memo->begin);

    return memo->starts[offset / 64] >> offset % 64 & 1;
}

const char *window_check_next(struct window_memo *memo, const uint8_t *begin,
                              size_t size, const uint8_t *site)
{
    if (size > WINDOW_LIMIT)
        return "its function is too long to be checked";
    if (site < begin || site + ARCH_SITE >= begin + size)
        return "its site is outside of its function";
    if (arch_may_branch(begin, size, (uintptr_t)site,
                        (uintptr_t)site + ARCH_SITE))
        return window_check(begin, size, true, site);
    if (!decode_up_to(memo, begin, size, site))
        return "its function cannot be decoded";
    /* Nothing begins in between: the two are of the lengths expected. */
    for (const uint8_t *at = site; at <= site + ARCH_SITE; at++)
        if (starts(memo, at) != (at == site || at == site + ARCH_WINDOW ||
                                 at == site + ARCH_SITE))
            return "its instructions do not begin where the site does";
    if (!flags_dead(site + ARCH_SITE, begin + size))
        return "flags may be in use behind the site";
    return NULL;
}
