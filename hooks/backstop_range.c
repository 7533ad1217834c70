/* SPDX-License-Identifier: BSD-3-Clause */
/* Registering and unregistering: the part of the backstop that hooks run. */
#include <errno.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "hooks/backstop.h"
#include "hooks/maps.h"
#include "shim/subscriber.h"
#include "shim/sys.h"

/* A release that holds more watched runs than this is left to the reader: one
 * wait is cheaper than so many system calls. */
#define RUNS_MAX 8

_Atomic int backstop_fd = -1;
int backstop_pid;

static long control(unsigned long request, void *argument)
{
    int fd = atomic_load_explicit(&backstop_fd, memory_order_relaxed);
    long err = sys(SYS_ioctl, fd, request, argument);

    /* The program closed it. Whoever next enters the API sees to it. */
    if (err == -EBADF || err == -ENOTTY)
        atomic_compare_exchange_strong_explicit(&backstop_fd, &fd, -1,
                                                memory_order_relaxed,
                                                memory_order_relaxed);
    return err;
}

long backstop_register(uintptr_t start, uintptr_t end)
{
    struct uffdio_register r = {.range = {start, end - start},
                                .mode = UFFDIO_REGISTER_MODE_WP};

    return control(UFFDIO_REGISTER, &r);
}

long backstop_unregister(uintptr_t start, uintptr_t end)
{
    struct uffdio_range r = {start, end - start};

    return control(UFFDIO_UNREGISTER, &r);
}

/* Is the page at `at` watched by anybody, and up to where does that go on? */
static bool span(uintptr_t at, uintptr_t end, uintptr_t *until)
{
    uint64_t live = atomic_load_explicit(&lapse_live, memory_order_seq_cst);
    uintptr_t near = end, far = at, to;

    for (; live; live &= live - 1) {
        struct subscriber *s = &lapse_subscribers.one[__builtin_ctzll(live)];

        if (!filter_span(&s->filter, at, &to))
            near = to < near ? to : near;
        else if (to > far)
            far = to;
    }
    *until = far == at ? near : far < end ? far : end;
    return far != at;
}

/* The same, to the very end of the run. */
static bool run(uintptr_t at, uintptr_t end, uintptr_t *until)
{
    bool is = span(at, end, until);
    uintptr_t to;

    while (*until < end && span(*until, end, &to) == is)
        *until = to;
    return is;
}

bool backstop_gone(uintptr_t start, uintptr_t end)
{
    unsigned char resident;

    return sys(SYS_mincore, start, PAGE_SIZE, &resident) == -ENOMEM &&
           sys(SYS_mincore, end - PAGE_SIZE, PAGE_SIZE, &resident) == -ENOMEM;
}

/* Not inlined: the buffer is seldom needed. */
__attribute__((noinline))
static void register_pieces(uintptr_t start, uintptr_t end)
{
    char text[MAPS_TEXT];
    struct maps m;

    for (maps_open(&m, text, sizeof(text)); maps_next(&m);) {
        uintptr_t from = start, to = end;

        if (maps_clip(&m.line, &from, &to))
            backstop_register(from, to);
    }
    maps_close(&m);
}

/* What was lifted as a whole may have got something into its middle since
 * that the kernel does not register; the rest of it must be. */
static void apply(uintptr_t start, uintptr_t end, bool on)
{
    if (!on)
        backstop_unregister(start, end);
    else if (backstop_register(start, end) &&
             atomic_load_explicit(&backstop_fd, memory_order_relaxed) >= 0 &&
             !backstop_gone(start, end))
        register_pieces(start, end);
}

void backstop_fit_by(uintptr_t start, uintptr_t end, bool all,
                     backstop_apply *by)
{
    uint64_t unsure =
        atomic_load_explicit(&filter_unsure, memory_order_relaxed);
    uintptr_t until, again;

    while (start < end) {
        bool is = run(start, end, &until);

        if (is || all)
            by(start, until, is);
        /* K4: seq_cst loads in span(), after the system call; if it was wrong
         * to register some, that is to be undone, too */
        if ((is || all) &&
            (run(start, until, &again) != is || again != until)) {
            all = true;
            continue;
        }
        start = until;
    }
    /* Once more, now that it is registered: see unwatch_op. */
    if (atomic_load_explicit(&filter_unsure, memory_order_relaxed) != unsure)
        atomic_fetch_add_explicit(&filter_unsure, 1, memory_order_seq_cst);
}

void backstop_fit(uintptr_t start, uintptr_t end)
{
    backstop_fit_by(start, end, false, apply);
}

void backstop_fit_all(uintptr_t start, uintptr_t end)
{
    backstop_fit_by(start, end, true, apply);
}

bool backstop_lift(uintptr_t start, uintptr_t end)
{
    uintptr_t at[RUNS_MAX], to[RUNS_MAX], until;
    unsigned n = 0;
    bool lifted = false;

    for (; start < end; start = until)
        if (run(start, end, &until)) {
            if (n == RUNS_MAX)
                return false;
            at[n] = start;
            to[n++] = until;
        }
    if (!n || sys(SYS_getpid) != backstop_pid)
        return false;
    for (unsigned i = 0; i < n; i++)
        /* What the kernel takes as a whole now, it will take again. */
        if (!backstop_register(at[i], to[i]))
            lifted |= !backstop_unregister(at[i], to[i]);
    return lifted;
}

void backstop_mapped(uintptr_t start, uintptr_t end)
{
    struct release r;
    uintptr_t until;

    if (!run(start, end, &until) && until == end)
        return;
    release_begin(&r, start, end, LAPSE_REASON_MUNMAP);
    release_count(&r, LAPSE_PATH_BACKSTOP, end - start, 1, INSIDE_NOTHING);
    backstop_fit(start, end);
    release_end(&r);
}
