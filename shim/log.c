/* SPDX-License-Identifier: BSD-3-Clause */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "sys.h"

#define LINE 400

struct line {
    char text[LINE];
    size_t len;
};

static void put(struct line *l, char c)
{
    if (l->len < LINE - 1)
        l->text[l->len++] = c;
}

static void put_number(struct line *l, uint64_t n, unsigned base)
{
    char digits[20];
    int i = 0;

    do
        digits[i++] = "0123456789abcdef"[n % base];
    while (n /= base);
    while (i)
        put(l, digits[--i]);
}

static void put_string(struct line *l, const char *s)
{
    for (s = s ? s : "(null)"; *s; s++)
        put(l, *s);
}

static void put_value(struct line *l, const char **f, va_list *ap)
{
    int wide = 0;

    while (**f == 'l' || **f == 'z') {
        wide = 1;
        ++*f;
    }
    switch (**f) {
    case 's':
        put_string(l, va_arg(*ap, const char *));
        break;
    case 'd': {
        long n = wide ? va_arg(*ap, long) : va_arg(*ap, int);

        if (n < 0)
            put(l, '-');
        put_number(l, n < 0 ? 0 - (uint64_t)n : (uint64_t)n, 10);
        break;
    }
    case 'u':
    case 'x':
        put_number(l,
                   wide ? va_arg(*ap, unsigned long)
                        : va_arg(*ap, unsigned int),
                   **f == 'u' ? 10 : 16);
        break;
    case 'p':
        put_string(l, "0x");
        put_number(l, (uintptr_t)va_arg(*ap, void *), 16);
        break;
    default:
        put(l, **f);
    }
}

/* What descriptor 2 was when the library was loaded. */
static struct {
    bool known, open;
    dev_t device;
    ino_t inode;
} at_start;

/* As ld.so asks: a filter that kills on calls that are not made anyhow lets
 * that through. */
static bool stat_stderr(struct stat *now)
{
    return !sys(SYS_newfstatat, 2, "", now, AT_EMPTY_PATH);
}

void log_start(void)
{
    struct stat now;

    at_start.open = stat_stderr(&now);
    if (at_start.open) {
        at_start.device = now.st_dev;
        at_start.inode = now.st_ino;
    }
    at_start.known = true;
}

/* A program that closed it may have a file of its own there since. */
bool log_is_open(void)
{
    struct stat now;

    return !at_start.known ||
           (at_start.open && stat_stderr(&now) &&
            now.st_dev == at_start.device && now.st_ino == at_start.inode);
}

/* Signals that a write may send to the thread that makes it, as the kernel
 * counts them: one bit each. */
#define WRITE_SIGNALS                                                          \
    (SIGNAL_BIT(SIGPIPE) | SIGNAL_BIT(SIGXFSZ) | SIGNAL_BIT(SIGTTOU))

/*
 * The program must not die, stop or wait for a line of ours (G5): what a write
 * to a broken pipe or beyond a file's limit sends is taken back, and a pipe
 * that is full goes without.
 */
static void write_line(const struct line *l)
{
    static const struct timespec now;
    const uint64_t mask = WRITE_SIGNALS;
    struct pollfd out = {.fd = 2, .events = POLLOUT};
    uint64_t old = 0, pending = 0, sent = 0;
    long n;

    if (!log_is_open() || (sys(SYS_ppoll, &out, 1, &now, 0, 0) >= 0 &&
                         !(out.revents & POLLOUT)))
        return;
    if (sys(SYS_rt_sigprocmask, SIG_BLOCK, &mask, &old, sizeof(mask)) ||
        sys(SYS_rt_sigpending, &pending, sizeof(pending)))
        return;
    n = sys(SYS_write, 2, l->text, l->len);
    if (n == -EPIPE)
        sent = SIGNAL_BIT(SIGPIPE);
    else if (n == -EFBIG)
        sent = SIGNAL_BIT(SIGXFSZ);
    if (sent & ~pending)
        sys(SYS_rt_sigtimedwait, &sent, 0, &now, sizeof(sent));
    sys(SYS_rt_sigprocmask, SIG_SETMASK, &old, 0, sizeof(old));
}

void log_warn(const char *format, ...)
{
    struct line l = {.len = 0};
    va_list ap;

    put_string(&l, "lapse[");
    put_number(&l, (uint64_t)sys(SYS_getpid), 10);
    put_string(&l, "]: ");
    va_start(ap, format);
    for (; *format; format++) {
        if (*format != '%' || !format[1]) {
            put(&l, *format);
            continue;
        }
        format++;
        put_value(&l, &format, &ap);
    }
    va_end(ap);
    l.text[l.len++] = '\n';
    write_line(&l);
}
