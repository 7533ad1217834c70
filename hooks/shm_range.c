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
    /* relaxed: only saves the asking; who subscribes a moment later meets a
     * release in flight that is said to be as long as it can be */
    return atomic_load_explicit(&lapse_live, memory_order_relaxed) != 0;
}

size_t shm_segment_size(int id)
{
    struct shmid_ds ds;

    if (!subscribed() && !lapse_reporting)
        return USER_END;
    if (sys(SYS_shmctl, id, IPC_STAT, &ds))
        return USER_END;
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
    uintptr_t end;
};

/*
 * The kernel detaches every piece of the segment that still lies where it was
 * attached: the first page may be gone, and others. This takes every file's
 * mapping that lies so, which may be one too many, never one too few.
 */

static void take_line(struct scan *s, const struct line *l)
{
    /* the first segment of a boot has inode 0, but a device */
    if ((l->value[INODE] || l->value[DEVICE]) && l->value[START] >= s->want &&
        l->value[OFFSET] == l->value[START] - s->want)
        s->end = l->value[END];
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
        return;
    } else if (c == ' ' || (c == '-' && l->field == START)) {
        l->field++;
    } else if (l->field != PERMS && digit >= 0) {
        /* an inode is decimal: only whether it is 0 is asked */
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
        return USER_END;
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
