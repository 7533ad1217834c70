/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * While one of these calls runs, all memory is announced: another thread may
 * map the file and watch it meanwhile, and then finds the release in flight
 * (I2 in inflight.h). What was mapped before is looked up and published; what
 * is mapped meanwhile where somebody watches already, is told by the hook of
 * the call that maps it (meet_files).
 *
 * open() and fallocate() may be ended by pthread_cancel() in the middle. A
 * slot that such a thread holds would never be given back. So where one is
 * held, cancellation waits until it is not; where nothing is held, as in an
 * open() that cuts nothing and may block for ever (a FIFO), it does not wait.
 *
 * Whether an open() with O_TRUNC is one or the other must be asked of the
 * kernel, and is, if somebody watches. If nobody does, nothing is asked (G4),
 * nothing held, and a watch that comes before the call ends is told of it at
 * its end: that is late for a registration of the same moment, but only a
 * program's first one can meet this.
 */
#include "hooks/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "hooks/account.h"
#include "hooks/backstop.h"
#include "hooks/file_range.h"
#include "shim/sys.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define TO_THE_END UINT64_MAX
#ifndef FALLOC_FL_WRITE_ZEROES
#define FALLOC_FL_WRITE_ZEROES 0x80 /* newer than Debian 12's headers */
#endif

/*
 * Not the cancellation state: a SIGCANCEL that is on its way looks at the
 * type alone. Both functions are async-cancel-safe, and change one word of
 * this thread's; cancel_again() may not return.
 */
static int cancel_later(void)
{
    int was = PTHREAD_CANCEL_DEFERRED;

    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &was);
    return was;
}

static void cancel_again(int was)
{
    int unused;

    if (was != PTHREAD_CANCEL_DEFERRED)
        pthread_setcanceltype(was, &unused);
}

static void claim_all(struct release *r)
{
    /* M1: shim/meet.h */
    release_announce(r, range_pack(0, USER_END), LAPSE_REASON_FILE);
}

static uint64_t publish(struct release *r, const struct file_id *file,
                        uint64_t from, uint64_t to)
{
    uint64_t bytes = 0;

    if (file->kind == FILE_MAPPABLE || file->kind == FILE_UNKNOWN)
        bytes = file_publish(r, file, from, to);
    release_test_delay(0);
    return bytes;
}

/* Another file may have got this name before the call came to it: then that
 * is the file. Not inlined: the other one is not needed for long. */
__attribute__((noinline))
static bool is_another(struct file_id *file, int fd, const char *path)
{
    struct file_id after = file_identify(fd, path, 0);

    if (file_same(file, &after))
        return false;
    *file = after;
    return true;
}

static long cut(long nr, int fd, const char *path, long len, unsigned counted,
                const uintptr_t *stack)
{
    long first = path ? (long)path : fd;
    uint64_t from = len > 0 ? page_up((uint64_t)len) : 0;
    struct file_id file;
    struct release r;
    uint64_t bytes = 0;
    bool wanted;
    long ret;

    claim_all(&r);
    wanted = file_wanted(); /* after the claim: I2 */
    if (wanted) {
        file = file_identify(path ? AT_FDCWD : fd, path, 0);
        bytes = publish(&r, &file, from, TO_THE_END);
    }
    ret = sys_call3(nr, first, len, 0);
    if (wanted && path && !ret && is_another(&file, AT_FDCWD, path))
        publish(&r, &file, from, TO_THE_END);
    account(&r, counted, 0, bytes, stack);
    release_end(&r);
    return ret;
}

long hook_ftruncate(long a0, long a1, long a2, long a3, long a4, long a5,
                    const uintptr_t *stack)
{
    return cut(SYS_ftruncate, (int)a0, NULL, a1, LAPSE_PATH_FTRUNCATE, stack);
}

long hook_truncate(long a0, long a1, long a2, long a3, long a4, long a5,
                   const uintptr_t *stack)
{
    return cut(SYS_truncate, 0, (const char *)a0, a1, LAPSE_PATH_TRUNCATE,
               stack);
}

/*
 * Which pages lose their place. Of a hole: tmpfs keeps those at its two ends
 * and zeroes a part of them; others may take all that the hole touches, by
 * page (XFS does, ext4 at the end of the file), or by larger units.
 */
static uint64_t publish_hole(struct release *r, const struct file_id *file,
                             int mode, uint64_t offset, uint64_t len)
{
    uint64_t unit = file->unit ? file->unit : (uint32_t)PAGE_SIZE;
    uint64_t from = offset & ~(unit - 1), to = offset + len;

    if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE |
                 FALLOC_FL_ZERO_RANGE | FALLOC_FL_UNSHARE_RANGE |
                 FALLOC_FL_WRITE_ZEROES)) {
        to = TO_THE_END; /* COLLAPSE, INSERT, and what may come */
    } else if (file->inward) {
        from = page_up(offset);
        to = page_down(to);
    } else {
        to = (to + unit - 1) & ~(unit - 1);
    }
    return publish(r, file, from, to);
}

long hook_fallocate(long a0, long a1, long a2, long a3, long a4, long a5,
                    const uintptr_t *stack)
{
    struct file_id file;
    struct release r;
    uint64_t bytes = 0;
    long ret;
    int was;

    if (!((int)a1 & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_UNSHARE_RANGE)) ||
        a2 < 0 || a3 <= 0)
        return sys_call6(SYS_fallocate, a0, a1, a2, a3, a4, a5);
    was = cancel_later();
    claim_all(&r);
    if (file_wanted()) {
        file = file_identify((int)a0, NULL, 0);
        bytes = publish_hole(&r, &file, (int)a1, (uint64_t)a2, (uint64_t)a3);
    }
    ret = sys_call6(SYS_fallocate, a0, a1, a2, a3, a4, a5);
    account_site(&r, LAPSE_PATH_FALLOCATE, 0, bytes, stack);
    release_end(&r);
    cancel_again(was);
    return ret;
}

/* A hole in whatever file is mapped there, so in its other mappings as well. */
long hook_remove(long a0, long a1, long a2, long a3, long a4, long a5,
                 const uintptr_t *stack)
{
    uintptr_t start = 0, end = 0;
    struct release r;
    bool lifted;
    long ret;

    range_of_call((uintptr_t)a0, (size_t)a1, &start, &end);
    claim_all(&r);
    if (release_in_hull(start, end))
        release_publish(&r, start, end, LAPSE_REASON_MADVISE);
    if (file_wanted())
        file_publish_mapped(&r, start, end);
    release_test_delay(0);
    lifted = backstop_before(start, end);
    ret = sys_call3(SYS_madvise, a0, a1, a2);
    if (lifted)
        backstop_after(start, end);
    account(&r, LAPSE_PATH_MADVISE, start, end, stack);
    release_end(&r);
    return ret;
}

struct opening {
    long nr, arg[4];
    const uintptr_t *stack;
    int flags;
    bool at;        /* the path is the second argument, not the first */
    bool elsewhere; /* the path does not mean what it means to stat() */
};

static long make(const struct opening *o)
{
    return sys_call6(o->nr, o->arg[0], o->arg[1], o->arg[2], o->arg[3], 0, 0);
}

static struct file_id identify(const struct opening *o)
{
    if (o->elsewhere)
        return FILE_ANY;
    return file_identify(o->at ? (int)o->arg[0] : AT_FDCWD,
                         (const char *)o->arg[o->at],
                         o->flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0);
}

/* With a file that may be mapped here, or that there is none yet. */
static long open_claimed(const struct opening *o, struct file_id *file)
{
    int was = cancel_later();
    struct release r;
    uint64_t bytes;
    long ret;

    claim_all(&r);
    bytes = publish(&r, file, 0, TO_THE_END);
    ret = make(o);
    if (ret >= 0 && file->kind != FILE_UNKNOWN &&
        is_another(file, (int)ret, NULL))
        publish(&r, file, 0, TO_THE_END);
    account_site(&r, LAPSE_PATH_OPEN, 0, bytes, o->stack);
    release_end(&r);
    cancel_again(was);
    return ret;
}

/* Somebody came while the call ran, and watches. */
static void tell_late(int fd)
{
    int was = cancel_later();
    struct file_id file;
    struct release r;

    claim_all(&r);
    file = file_identify(fd, NULL, 0);
    publish(&r, &file, 0, TO_THE_END);
    release_end(&r);
    cancel_again(was);
}

static void count_alone(const struct opening *o)
{
    int was = cancel_later();
    struct release r;

    release_announce(&r, RANGE_NOTHING, LAPSE_REASON_FILE);
    account_site(&r, LAPSE_PATH_OPEN, 0, 0, o->stack);
    release_end(&r);
    cancel_again(was);
}

/* It may block for as long as it likes. Not inlined: G4's stack. */
__attribute__((noinline))
static long open_unclaimed(const struct opening *o)
{
    long ret;

    if (o->flags & O_TRUNC)
        count_alone(o);
    ret = make(o);
    if (ret >= 0 && __builtin_expect(file_wanted(), 0))
        tell_late((int)ret);
    return ret;
}

static long open_cutting(const struct opening *o)
{
    struct file_id file;

    if (file_wanted()) {
        file = identify(o);
        if (file.kind != FILE_OTHER)
            return open_claimed(o, &file);
    }
    return open_unclaimed(o);
}

static inline bool cuts(long flags)
{
    return (flags & O_TRUNC) && !(flags & O_PATH) &&
           (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL);
}

long hook_open(long a0, long a1, long a2, long a3, long a4, long a5,
               const uintptr_t *stack)
{
    if (__builtin_expect(!cuts(a1), 1))
        return sys_call3(SYS_open, a0, a1, a2);
    return open_cutting(&(struct opening){
        SYS_open, {a0, a1, a2}, stack, (int)a1, false, false});
}

long hook_openat(long a0, long a1, long a2, long a3, long a4, long a5,
                 const uintptr_t *stack)
{
    if (__builtin_expect(!cuts(a2), 1))
        return sys_call6(SYS_openat, a0, a1, a2, a3, a4, a5);
    return open_cutting(&(struct opening){
        SYS_openat, {a0, a1, a2, a3}, stack, (int)a2, true, false});
}

long hook_creat(long a0, long a1, long a2, long a3, long a4, long a5,
                const uintptr_t *stack)
{
    return open_cutting(&(struct opening){
        SYS_creat, {a0, a1}, stack, O_CREAT | O_WRONLY | O_TRUNC, false,
        false});
}

/* The flags lie in memory of the caller, which may be no memory. False: the
 * call meets the same, or cuts nothing. */
__attribute__((noinline))
static bool read_how(struct opening *o, long from)
{
    struct open_how how = {.flags = 0};
    struct iovec local = {&how, sizeof(how)};
    struct iovec remote = {(void *)from, sizeof(how)};
    long size = sys(SYS_process_vm_readv, sys(SYS_getpid), &local, 1,
                    &remote, 1, 0);

    o->flags = (int)how.flags;
    o->elsewhere = size != sizeof(how) || how.resolve;
    return size != -EFAULT &&
           (size != sizeof(how) || cuts((long)how.flags));
}

long hook_openat2(long a0, long a1, long a2, long a3, long a4, long a5,
                  const uintptr_t *stack)
{
    struct opening o = {SYS_openat2, {a0, a1, a2, a3}, stack, 0, true, true};

    if (file_wanted() && !read_how(&o, a2))
        return make(&o);
    return open_cutting(&o);
}
