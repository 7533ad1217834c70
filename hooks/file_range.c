/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is a mapping one of this file? /proc names a mapping's file by device and
 * inode as the kernel's own object has them, stat() as the file system likes
 * to show them. The rule here must never say no wrongly:
 *
 *  - Devices are not compared: btrfs shows one for each subvolume, overlayfs
 *    that of a layer or its own.
 *  - Inodes are compared where the file system shows the number that the
 *    object has: ext4, XFS, btrfs, F2FS, tmpfs (memfd and shm_open, too),
 *    hugetlbfs. Another file with this number, in another file system or
 *    subvolume, is a false alarm.
 *  - Of any other one (overlayfs and FUSE make numbers up, and so does 9p),
 *    every mapping of a file counts.
 *  - A block device has as many inodes as names: every mapping of a file.
 *
 * Left is a file that is mapped by way of a file system stacked over this
 * one, which may have another number there; to change it below is undefined
 * by overlayfs's own rules.
 */
#include "hooks/file_range.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#include "hooks/maps.h"
#include "shim/subscriber.h"
#include "shim/sys.h"

#define UNIT_MAX ((uint64_t)1 << 30) /* of a huge page, or an XFS extent */

bool file_wanted(void)
{
    uint64_t live;

    if (!release_in_hull(0, USER_END))
        return false;
    live = atomic_load_explicit(&lapse_live, memory_order_seq_cst);
    for (; live; live &= live - 1)
        /* relaxed: written before its bit of live */
        if (atomic_load_explicit(
                &lapse_subscribers.one[__builtin_ctzll(live)].reasons,
                memory_order_relaxed) & LAPSE_MASK(LAPSE_REASON_FILE))
            return true;
    return false;
}

static enum file_kind kind_of_error(long error)
{
    switch (-error) {
    case EBADF: case EFAULT: case ENOENT: case ENOTDIR: case EACCES:
    case ELOOP: case ENAMETOOLONG:
        return FILE_MISSING; /* the call meets the same */
    default:
        return FILE_UNKNOWN;
    }
}

/* Not inlined, nor the next one: their buffers are not needed at once. */
__attribute__((noinline))
static void look_at_file(struct file_id *id, int fd, const char *path,
                         int flags)
{
    struct stat st;
    long error = path ? sys(SYS_newfstatat, fd, path, &st, flags)
                      : sys(SYS_fstat, fd, &st);
    uint64_t unit;

    id->kind = FILE_OTHER;
    if (error) {
        id->kind = kind_of_error(error);
        return;
    }
    if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
        return;
    id->kind = FILE_MAPPABLE;
    id->device = st.st_dev;
    id->inode = st.st_ino;
    id->by_inode = S_ISREG(st.st_mode);
    unit = (uint64_t)st.st_blksize;
    id->unit = unit > PAGE_SIZE && unit <= UNIT_MAX && !(unit & (unit - 1))
                   ? (uint32_t)unit : (uint32_t)PAGE_SIZE;
}

__attribute__((noinline))
static bool on_device(int fd, uint64_t device)
{
    struct stat st;

    return !sys(SYS_fstat, fd, &st) && st.st_dev == device;
}

/*
 * Of which kind is the file system? statfs() begins at no directory, and a
 * path must not be read here: where it begins at another one, that one is
 * asked, and believed if it is on the same device.
 */
__attribute__((noinline))
static void look_at_system(struct file_id *id, int fd, const char *path)
{
    struct statfs fs;
    bool there = path && fd != AT_FDCWD;

    if ((path && !there) ? sys(SYS_statfs, path, &fs)
                         : sys(SYS_fstatfs, fd, &fs))
        fs.f_type = 0;
    if (there && !on_device(fd, id->device))
        fs.f_type = 0;
    id->inward = fs.f_type == TMPFS_MAGIC;
    switch (fs.f_type) {
    case EXT4_SUPER_MAGIC: case XFS_SUPER_MAGIC: case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC: case TMPFS_MAGIC: case HUGETLBFS_MAGIC:
        break;
    default:
        id->by_inode = false;
    }
}

struct file_id file_identify(int fd, const char *path, int flags)
{
    struct file_id id = {.kind = FILE_MISSING};

    look_at_file(&id, fd, path, flags);
    if (id.kind == FILE_MAPPABLE && id.by_inode)
        look_at_system(&id, fd, path);
    return id;
}

struct part { /* of memory */
    uintptr_t start, end;
};

/* Which memory is bytes from..to of the file in this mapping? */
static bool part_of(const struct maps_line *line, const struct file_id *file,
                    uint64_t from, uint64_t to, struct part *part)
{
    uint64_t size = line->end - line->start;

    if (!maps_is_file(line) || line->end > USER_END ||
        (file->by_inode && line->inode != file->inode))
        return false;
    from = from > line->offset ? from - line->offset : 0;
    to = to > line->offset ? to - line->offset : 0;
    if (to > size)
        to = size;
    part->start = line->start + from;
    part->end = line->start + to;
    return from < to;
}

/* The mappings cannot be read: it may be any of them. */
static uint64_t publish_any(struct release *r)
{
    release_publish(r, 0, USER_END, LAPSE_REASON_FILE);
    return USER_END;
}

/* But for what is told already. Returns how many bytes it was. */
static uint64_t publish_but(const struct part *told, struct release *r,
                            const struct file_id *file, uint64_t from,
                            uint64_t to)
{
    uint64_t bytes = 0;
    char text[MAPS_TEXT];
    struct part part;
    struct maps m;

    for (maps_open(&m, text, sizeof(text)); maps_next(&m);) {
        if (!part_of(&m.line, file, from, to, &part) ||
            (part.start >= told->start && part.end <= told->end))
            continue;
        bytes += part.end - part.start;
        if (release_in_hull(part.start, part.end))
            release_publish(r, part.start, part.end, LAPSE_REASON_FILE);
    }
    return maps_close(&m) ? bytes : publish_any(r);
}

uint64_t file_publish(struct release *r, const struct file_id *file,
                      uint64_t from, uint64_t to)
{
    static const struct part nothing;

    return publish_but(&nothing, r, file, from, to);
}

enum found { FOUND, FOUND_NONE, FOUND_ERROR };

/* The first mapping of a file that has some of [start, end). */
__attribute__((noinline)) /* for its buffer */
static enum found first_mapped(uintptr_t start, uintptr_t end,
                               struct maps_line *first)
{
    char text[MAPS_TEXT];
    struct maps m;
    bool found = false;

    maps_open(&m, text, sizeof(text));
    while (!found && maps_next(&m))
        found = maps_is_file(&m.line) && m.line.end > start &&
                m.line.start < end;
    *first = m.line;
    return maps_close(&m) ? FOUND_NONE : found ? FOUND : FOUND_ERROR;
}

void file_publish_mapped(struct release *r, uintptr_t start, uintptr_t end)
{
    struct part told = {start, end};
    struct file_id id = {.kind = FILE_MAPPABLE, .by_inode = true};
    struct maps_line line;
    uint64_t from, to;

    for (uintptr_t at = start; at < end;) {
        switch (first_mapped(at, end, &line)) {
        case FOUND:
            /* The inode is the one that /proc shows: it can be compared. */
            id.inode = line.inode;
            from = (at > line.start ? at - line.start : 0) + line.offset;
            at = line.end < end ? line.end : end;
            to = at - line.start + line.offset;
            publish_but(&told, r, &id, from, to);
            break;
        case FOUND_ERROR:
            publish_any(r);
            /* fall through */
        case FOUND_NONE:
            return;
        }
    }
}
