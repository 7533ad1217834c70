/* SPDX-License-Identifier: BSD-3-Clause */
#include "unwind_space.h"

#include <stdlib.h>
#include <string.h>

enum { REMEMBERED = 1024 }; /* instructions, by libunwind */

static struct unwind_space *spaces;

static void space_free(struct unwind_space *u)
{
    unw_destroy_addr_space(u->space);
    free(u->seen);
    free(u);
}

void unwind_space_free(struct trace *t)
{
    struct unwind_space **at = &spaces;

    while (*at) {
        struct unwind_space *u = *at;

        if (t && u->trace != t) {
            at = &u->next;
            continue;
        }
        *at = u->next;
        space_free(u);
    }
}

struct unwind_space *unwind_space_of(struct trace *t,
                                     unw_accessors_t *accessors)
{
    uint64_t began = trace_head(t)->start.ticks;
    struct unwind_space *u = spaces;

    while (u && u->trace != t)
        u = u->next;
    if (u && u->began == began)
        return u;
    unwind_space_free(t);
    u = calloc(1, sizeof(*u));
    if (!u)
        return NULL;
    u->space = unw_create_addr_space(accessors, 0);
    if (!u->space) {
        free(u);
        return NULL;
    }
    unw_set_caching_policy(u->space, UNW_CACHE_GLOBAL);
    unw_set_cache_size(u->space, REMEMBERED, 0);
    u->trace = t;
    u->began = began;
    u->next = spaces;
    spaces = u;
    return u;
}

static struct unwind_seen *find(struct unwind_space *u, uint64_t pc)
{
    size_t at = (pc * 0x9e3779b97f4a7c15u) >> 20;

    while (u->seen[at & (u->room - 1)].pc &&
           u->seen[at & (u->room - 1)].pc != pc)
        at++;
    return &u->seen[at & (u->room - 1)];
}

static void forget(struct unwind_space *u)
{
    unw_flush_cache(u->space, 0, 0);
    memset(u->seen, 0, u->room * sizeof(*u->seen));
    u->count = 0;
}

/* At most three quarters are in use. */
static bool make_room(struct unwind_space *u)
{
    size_t room = u->room ? 2 * u->room : 1024;
    struct unwind_seen *old = u->seen, *more;

    if (u->count < u->room / 4 * 3)
        return true;
    more = calloc(room, sizeof(*more));
    if (!more) {
        if (!u->room)
            return false;
        forget(u);
        return true;
    }
    u->seen = more;
    for (size_t i = 0, n = u->room; i < n; i++)
        if (old[i].pc) {
            u->room = room;
            *find(u, old[i].pc) = old[i];
        }
    u->room = room;
    free(old);
    return true;
}

bool unwind_space_same(struct unwind_space *u, uint64_t pc,
                       const struct trace_segment *segment)
{
    struct unwind_seen *seen;

    if (!make_room(u)) {
        unw_flush_cache(u->space, 0, 0);
        return true;
    }
    seen = find(u, pc);
    if (seen->pc && seen->segment != segment) {
        forget(u);
        return false;
    }
    u->count += !seen->pc;
    *seen = (struct unwind_seen){pc, segment};
    return true;
}
