/* SPDX-License-Identifier: BSD-3-Clause */
#include "hooks/shm_range.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#include "shim/release.h"
#include "shim/sys.h"

static bool subscribed(void)
{
    /* seq_cst: part of F1 (inflight.h); who subscribes later and watches
     * meets this release in flight, with one page said: but it also pins
     * later than it looked, and a segment is detached whole or not at all */
    return atomic_load_explicit(&lapse_live, memory_order_seq_cst) != 0;
}

size_t shm_segment_size(int id)
{
    struct shmid_ds ds;

    if (!subscribed() && !lapse_reporting)
        return 0;
    if (sys(SYS_shmctl, id, IPC_STAT, &ds))
        return 0;
    return ds.shm_segsz;
}

/* A line of /proc/self/maps, taken in character by character:
 * start-end perms offset dev:dev inode path */
struct line {
    unsigned field; /* 0 start .. 6 path */
    uint64_t value[6];
};
enum { START, END, PERMS, OFFSET, DEVICE, INODE, PATH };

struct scan {
    uintptr_t want;
    uint64_t device, inode; /* of the segment, once met */
    uintptr_t end;
};

static void take_line(struct scan *s, const struct line *l)
{
    if (l->value[START] == s->want) {
        s->device = l->value[DEVICE];
        s->inode = l->value[INODE];
        s->end = l->value[END];
    } else if (s->end && l->value[START] > s->want &&
               l->value[DEVICE] == s->device && l->value[INODE] == s->inode &&
               l->value[OFFSET] == l->value[START] - s->want) {
        s->end = l->value[END]; /* a further piece of the same attachment */
    }
}

static void take_char(struct scan *s, struct line *l, char c)
{
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                       : -1;

    if (c == '\n') {
        take_line(s, l);
        *l = (struct line){0};
    } else if (l->field == PATH || (c == ':' && l->field == DEVICE)) {
        return; /* the two halves of the device run together: still unique */
    } else if (c == ' ' || (c == '-' && l->field == START)) {
        l->field++;
    } else if (l->field != PERMS && digit >= 0) {
        /* inodes are decimal; read as hex they are still unique */
        l->value[l->field] = l->value[l->field] << 4 | (uint64_t)digit;
    }
}

uintptr_t shm_attached_end(uintptr_t start)
{
    struct scan s = {.want = start};
    struct line l = {0};
    char text[256];
    long fd, n;

    if (!subscribed() && !lapse_reporting)
        return start + PAGE_SIZE;
    fd = sys(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return USER_END;
    while ((n = sys(SYS_read, fd, text, sizeof(text))) > 0)
        for (long i = 0; i < n; i++)
            take_char(&s, &l, text[i]);
    sys(SYS_close, fd);
    if (n < 0)
        return USER_END;
    return s.end ? s.end : start + PAGE_SIZE; /* not attached: it fails */
}
