/* SPDX-License-Identifier: BSD-3-Clause */
#include "hooks/backstop_hold.h"

#include <sys/syscall.h>
#include <time.h>

#include "shim/release.h"
#include "shim/sys.h"

#define HELD_MAX 64

static struct held {
    struct release release;
    uint64_t until; /* 0: a free place */
} held[HELD_MAX];

static uint64_t now_ns(void)
{
    struct timespec t;

    sys(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void end(struct held *h)
{
    h->release.outside = lapse_hint.depth;
    lapse_hint.depth++;
    release_end(&h->release);
    h->until = 0;
}

void hold_look(void)
{
}

void hold_begin(uintptr_t start, uintptr_t stop)
{
    struct held *h = &held[0];

    for (unsigned i = 1; i < HELD_MAX && h->until; i++)
        if (held[i].until < h->until)
            h = &held[i];
    if (h->until)
        end(h);
    release_begin(&h->release, start, stop, LAPSE_REASON_MADVISE);
    release_count(&h->release, LAPSE_PATH_BACKSTOP, stop - start, 1,
                  INSIDE_NOTHING);
    release_leave(&h->release);
    h->until = now_ns() + HOLD_NS;
}

bool hold_round(void)
{
    uint64_t now = now_ns();
    bool any = false;

    for (unsigned i = 0; i < HELD_MAX; i++)
        if (held[i].until && held[i].until <= now)
            end(&held[i]);
        else
            any |= held[i].until != 0;
    return any;
}

void hold_fork_child(void)
{
    for (unsigned i = 0; i < HELD_MAX; i++)
        held[i].until = 0;
}
