/* SPDX-License-Identifier: BSD-3-Clause */
#include "hooks/maps.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include "shim/sys.h"

/* start-end perms offset dev:dev inode path */
enum { START, END, PERMS, OFFSET, DEVICE, INODE, PATH };

static uint64_t with_digit(uint64_t value, unsigned base, char c)
{
    unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                            : base;

    return digit < base ? value * base + digit : value;
}

static void take_char(struct maps *m, char c)
{
    struct maps_line *line = &m->line;

    if (m->field == PATH)
        return;
    if (c == ' ' || (c == '-' && m->field == START)) {
        m->field++;
        return;
    }
    switch (m->field) {
    case START: line->start = with_digit(line->start, 16, c); break;
    case END: line->end = with_digit(line->end, 16, c); break;
    case OFFSET: line->offset = with_digit(line->offset, 16, c); break;
    case DEVICE:
        line->device = (uint32_t)with_digit(line->device, 16, c);
        break;
    case PERMS: line->readable |= c == 'r'; break;
    case INODE: line->inode = with_digit(line->inode, 10, c); break;
    default: break;
    }
}

/* Of the thread: that of a process whose first thread has ended is empty. */
void maps_open(struct maps *m, char *text, size_t room)
{
    *m = (struct maps){
        .text = text,
        .room = room < UINT16_MAX ? (uint16_t)room : UINT16_MAX};
    m->fd = (int)sys(SYS_openat, AT_FDCWD, "/proc/thread-self/maps",
                     O_RDONLY | O_CLOEXEC);
}

static bool more(struct maps *m)
{
    long n = sys(SYS_read, m->fd, m->text, m->room);

    m->at_end = n == 0;
    m->at = 0;
    m->size = n > 0 ? (uint16_t)n : 0;
    return n > 0;
}

bool maps_next(struct maps *m)
{
    char c;

    m->line = (struct maps_line){0};
    m->field = START;
    while (m->at < m->size || more(m)) {
        c = m->text[m->at++];
        if (c == '\n') {
            m->lines++;
            return true;
        }
        take_char(m, c);
    }
    return false;
}

bool maps_close(struct maps *m)
{
    if (m->fd >= 0)
        sys(SYS_close, m->fd);
    return m->at_end && m->lines;
}
