/* SPDX-License-Identifier: BSD-3-Clause */
#include "hooks/maps.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include "shim/sys.h"

/* start-end perms offset dev:dev inode path */
enum { START, END, PERMS, OFFSET, DEVICE, INODE, PATH };

static void add_digit(uint64_t *value, unsigned base, char c)
{
    unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                            : base;

    if (digit < base)
        *value = *value * base + digit;
}

static void take_char(struct maps_text *t, char c)
{
    if (t->field == PATH)
        return;
    if (c == ' ' || (c == '-' && t->field == START)) {
        t->field++;
        return;
    }
    switch (t->field) {
    case START: add_digit(&t->line.start, 16, c); break;
    case END: add_digit(&t->line.end, 16, c); break;
    case OFFSET: add_digit(&t->line.offset, 16, c); break;
    case DEVICE: add_digit(&t->line.device, 16, c); break;
    case PERMS: t->line.readable |= c == 'r'; break;
    case INODE: add_digit(&t->line.inode, 10, c); break;
    default: break;
    }
}

void maps_feed(struct maps_text *t, const char *text, size_t size,
               maps_take *take, void *arg)
{
    for (size_t i = 0; i < size; i++) {
        if (text[i] != '\n') {
            take_char(t, text[i]);
            continue;
        }
        take(arg, &t->line);
        t->line = (struct maps_line){0};
        t->field = START;
        t->lines++;
    }
}

/* Of the thread: that of a process whose first thread has ended is empty. */
bool maps_each_by(char *buffer, size_t room, maps_take *take, void *arg)
{
    struct maps_text t = {.field = START};
    long fd = sys(SYS_openat, AT_FDCWD, "/proc/thread-self/maps",
                  O_RDONLY | O_CLOEXEC);
    long n;

    if (fd < 0)
        return false;
    while ((n = sys(SYS_read, fd, buffer, room)) > 0)
        maps_feed(&t, buffer, (size_t)n, take, arg);
    sys(SYS_close, fd);
    return n == 0 && t.lines;
}

bool maps_each(maps_take *take, void *arg)
{
    char text[64]; /* on somebody's stack: G4 */

    return maps_each_by(text, sizeof(text), take, arg);
}
