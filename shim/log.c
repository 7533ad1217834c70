/* SPDX-License-Identifier: BSD-3-Clause */
#include "log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

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
    sys(SYS_write, 2, l.text, l.len);
}
