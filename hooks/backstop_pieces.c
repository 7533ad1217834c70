/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registering what the kernel does not take as a whole: ranges that begin in a
 * hole, or hold a mapping that cannot be registered (a file mapped shared and
 * read-only, another userfaultfd's, before Linux 6.7 any file's). Goes by
 * /proc/thread-self/maps. Never in a hook: it may take milliseconds.
 */
#include <fcntl.h>
#include <sys/syscall.h>

#include "hooks/backstop.h"
#include "hooks/backstop_open.h"
#include "shim/range.h"
#include "shim/sys.h"

#define HUGE ((uintptr_t)2 << 20)

struct scan {
    uintptr_t start, end; /* asked for */
    bool on;
    uintptr_t value[2]; /* start-end of the line so far */
    unsigned field;     /* 0, 1: one of these; 2: the rest of the line */
};

static long apply(uintptr_t start, uintptr_t end, bool on)
{
    return on ? backstop_register(start, end)
              : backstop_unregister(start, end);
}

/* One mapping. A huge page is registered whole; who watches a part of one is
 * told of the rest too, and it stays registered. */
static void take_mapping(const struct scan *s)
{
    uintptr_t a = s->value[0], b = s->value[1];
    uintptr_t start = s->start > a ? s->start : a;
    uintptr_t end = s->end < b ? s->end : b;

    if (start >= end || !apply(start, end, s->on) || !s->on)
        return;
    start &= ~(HUGE - 1);
    end = (end + HUGE - 1) & ~(HUGE - 1);
    if (start >= a && end <= b && !apply(start, end, true))
        return;
    backstop_cover(BACKSTOP_PARTLY);
}

static void take_char(struct scan *s, char c)
{
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                       : -1;

    if (c == '\n') {
        take_mapping(s);
        s->field = 0;
        s->value[0] = s->value[1] = 0;
    } else if (s->field < 2 && digit >= 0) {
        s->value[s->field] = s->value[s->field] << 4 | (uintptr_t)digit;
    } else if (s->field < 2) {
        s->field++;
    }
}

/* Of the thread: that of a process whose first thread has ended is empty. */
static long open_maps(void)
{
    return sys(SYS_openat, AT_FDCWD, "/proc/thread-self/maps",
               O_RDONLY | O_CLOEXEC);
}

uint64_t backstop_mappings(void)
{
    char text[4096];
    uint64_t lines = 0;
    long fd = open_maps(), n;

    while (fd >= 0 && (n = sys(SYS_read, fd, text, sizeof(text))) > 0)
        for (long i = 0; i < n; i++)
            lines += text[i] == '\n';
    if (fd >= 0)
        sys(SYS_close, fd);
    return lines;
}

void backstop_pieces(uintptr_t start, uintptr_t end, bool on)
{
    struct scan s = {.start = start, .end = end, .on = on};
    char text[4096];
    long fd, n;

    if (!apply(start, end, on) || (!on && backstop_gone(start, end)))
        return;
    fd = open_maps();
    while (fd >= 0 && s.value[0] < end &&
           (n = sys(SYS_read, fd, text, sizeof(text))) > 0)
        for (long i = 0; i < n && s.value[0] < end; i++)
            take_char(&s, text[i]);
    if (fd >= 0)
        sys(SYS_close, fd);
}
