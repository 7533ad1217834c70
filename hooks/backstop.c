/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reader: a thread that turns the kernel's events into records. A thread
 * that releases memory sleeps in the kernel until its event is read, holding
 * whatever locks it holds. So the reader waits for nobody: no lock, no
 * allocation, and it is not the drainer, whose callbacks may release too.
 *
 * The kernel lets the releaser go when the event is read, not when it is
 * handled, and a munmap has happened before the event is there. What closes
 * the two gaps:
 *  - K1: before it reads, the reader sets QUEUE_COMING in every queue, and
 *    takes it away when the records are in. Whoever the releaser tells of its
 *    release, itself included, finds lapse_pending() true until then, and
 *    lapse_poll() waits for the few steps that are left (backstop_settle), or
 *    says OVERFLOW. This covers all who learn of the release through its
 *    return. Who comes when the marks are set already could watch and lose
 *    something that is read in the same round; lapse_subscribe() lets that
 *    round end (K7, K8).
 *  - Others can only learn of it by getting the address. While it is watched,
 *    mmap, brk, mremap and shmat that come by a hook tell of it themselves
 *    before they return it (backstop_mapped).
 *  - A madvise releases after its event; see backstop_hold.h.
 * What is left: an address that one inline system call releases, and another
 * one, in another thread, gets back before the event of the first is queued.
 */
#include "hooks/backstop.h"

#include <errno.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "hooks/backstop_hold.h"
#include "hooks/backstop_open.h"
#include "shim/backstop.h"
#include "shim/log.h"
#include "shim/sys.h"
#include "shim/thread.h"

#define EVENTS 16
enum state {
    ASLEEP,  /* nobody subscribed yet */
    READING, /* there is a reader */
    STALE,   /* forked, or the program closed it: to be made anew */
    REFUSED
};
static _Atomic uint32_t state;
static _Atomic uint32_t reader; /* is there such a thread? */
static _Atomic uint32_t quit;   /* it is to leave */
static _Atomic uint32_t rounds; /* of the reader; odd while it is in one */
/* A page of ours; an event of it is a word with the reader. */
static uintptr_t bell;
static _Atomic int64_t room; /* registrations until mappings are counted */
static uint64_t mappings_max;

static void refuse(enum backstop_extent why, long err)
{
    atomic_store_explicit(&state, REFUSED, memory_order_relaxed);
    backstop_cover(why);
    log_warn("LAPSE_BACKSTOP=uffd: %s (error %d);"
             " releases by inline system calls stay unseen",
             why == BACKSTOP_NO_THREAD ? "no thread can be made"
                                       : "the kernel refuses userfaultfd",
             (int)-err);
}

/* Everybody: everything may have lapsed. INLINE handlers too. */
static void tell_overflow(void)
{
    struct release r = {.outside = lapse_hint.depth};

    release_unslotted();
    lapse_hint.depth++;
    release_end_marked(&r);
}

static void mark(uint64_t set, uint64_t clear)
{
    uint64_t live = atomic_load_explicit(&lapse_live, memory_order_seq_cst);

    if (clear) /* those that ended meanwhile, too */
        live = ~(uint64_t)0;
    for (; live; live &= live - 1) {
        struct queue *q =
            &lapse_subscribers.one[__builtin_ctzll(live)].queue;

        if (!clear || (atomic_load_explicit(&q->word, memory_order_relaxed) &
                       clear))
            queue_mark(q, set, clear); /* K1: seq_cst Q4; pairs with K2 */
    }
}

static void tell(uintptr_t start, uintptr_t end, unsigned reason)
{
    struct release r;

    release_begin(&r, start, end, reason);
    release_count(&r, LAPSE_PATH_BACKSTOP, end - start, 1, INSIDE_NOTHING);
    release_end(&r);
}

static void take_event(const struct uffd_msg *m)
{
    uintptr_t start, end;

    switch (m->event) {
    case UFFD_EVENT_UNMAP: /* not only munmap: MAP_FIXED, brk, mremap too */
        tell(m->arg.remove.start, m->arg.remove.end, LAPSE_REASON_MUNMAP);
        break;
    case UFFD_EVENT_REMOVE:
        start = m->arg.remove.start;
        end = m->arg.remove.end;
        if (start != bell)
            hold_begin(start, end);
        break;
    case UFFD_EVENT_REMAP:
        start = m->arg.remap.from;
        tell(start, start + m->arg.remap.len, LAPSE_REASON_MREMAP);
        /* it moved with its registration */
        start = m->arg.remap.to;
        backstop_fit_all(start, start + m->arg.remap.len);
        break;
    }
}

/* Did the kernel refuse it, rather than put it off? */
static bool has_failed(long n)
{
    return n < 0 && n != -EAGAIN && n != -EINTR;
}

/* -errno when no more can be read; -EBADF: the file is gone. */
static long serve(int fd)
{
    struct uffd_msg m[EVENTS];
    long n = -EBADF;

    /* seq_cst K7: before mark() looks who is live; pairs with K8 */
    atomic_fetch_add_explicit(&rounds, 1, memory_order_seq_cst);
    mark(QUEUE_COMING, 0);
    release_test_delay(0);
    if (backstop_is_ours(fd))
        n = sys(SYS_read, fd, m, sizeof(m));
    release_test_delay(0);
    for (long i = 0; i < n / (long)sizeof(*m); i++)
        take_event(&m[i]);
    mark(0, QUEUE_COMING);
    atomic_fetch_add_explicit(&rounds, 1, memory_order_release);
    return has_failed(n) ? n : 0;
}

/* Waits and serves; as above. */
static long serve_next(int fd, const struct timespec *limit)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    long n = sys(SYS_ppoll, &p, 1, limit, NULL, 0);

    if (n > 0)
        return serve(fd);
    return has_failed(n) ? n : 0;
}

static void *reader_main(void *unused)
{
    static const struct timespec tick = {.tv_nsec = HOLD_TICK_NS};
    int fd = atomic_load_explicit(&backstop_fd, memory_order_relaxed);
    struct timespec wait;
    bool held = false;
    long err;

    (void)unused;
    sys(SYS_prctl, PR_SET_NAME, "lapse-backstop");
    while (!atomic_load_explicit(&quit, memory_order_acquire)) {
        wait = tick;
        err = serve_next(fd, held ? &wait : NULL);
        if (err) {
            /* The program closed it, and with it all registrations ended; or
             * it may not be read any more, and who waits for us is let go. */
            int mine = fd;

            /* the rows first: who watches from then on is not told */
            if (err != -EBADF)
                refuse(BACKSTOP_REFUSED, err);
            atomic_compare_exchange_strong_explicit(&backstop_fd, &mine, -1,
                                                    memory_order_release,
                                                    memory_order_relaxed);
            tell_overflow();
            break;
        }
        held = hold_round(false);
    }
    while (hold_round(true))
        sys(SYS_sched_yield);
    /* Open still, if only a child of vfork closed it: nobody may sleep for an
     * event of it. */
    if (backstop_is_ours(fd))
        sys(SYS_close, fd);
    /* release K5: pairs with K6 */
    atomic_store_explicit(&reader, 0, memory_order_release);
    return unused;
}

static int make_reader(void)
{
    static const struct lapse_thread thread = {.start = reader_main};
    int err;

    atomic_store_explicit(&quit, 0, memory_order_relaxed);
    atomic_store_explicit(&reader, 1, memory_order_relaxed);
    err = lapse_thread_start(&thread, NULL);
    if (err)
        atomic_store_explicit(&reader, 0, memory_order_relaxed);
    return err;
}

/* With the registry held. */
static void begin(void)
{
    long fd = backstop_open(), err;

    if (fd >= 0) {
        backstop_pid = (int)sys(SYS_getpid);
        atomic_store_explicit(&backstop_fd, (int)fd, memory_order_relaxed);
        /* before the reader, which may find that it cannot be */
        atomic_store_explicit(&state, READING, memory_order_relaxed);
        err = make_reader();
        if (!err) {
            backstop_register(bell, bell + PAGE_SIZE);
            return;
        }
        atomic_store_explicit(&backstop_fd, -1, memory_order_relaxed);
        sys(SYS_close, fd);
        refuse(BACKSTOP_NO_THREAD, err);
    } else {
        refuse(BACKSTOP_REFUSED, fd);
    }
}

/* The reader of a file that was closed may sleep on it still. An event of a
 * page of that file wakes it; once the file is gone, the call does nothing. */
static void end_reader(void)
{
    /* release: with the acquire in reader_main */
    atomic_store_explicit(&quit, 1, memory_order_release);
    /* acquire K6: pairs with K5 */
    while (atomic_load_explicit(&reader, memory_order_acquire)) {
        sys(SYS_madvise, bell, PAGE_SIZE, MADV_DONTNEED);
        sys(SYS_sched_yield);
    }
}

static void fit_hull(bool all)
{
    uintptr_t low =
        atomic_load_explicit(&lapse_hull.low, memory_order_seq_cst);
    uintptr_t high =
        atomic_load_explicit(&lapse_hull.high, memory_order_seq_cst);

    if (low < high)
        backstop_fit_by(low, high, all, backstop_pieces);
}

/* What was released meanwhile, nobody saw. */
static void renew(void)
{
    end_reader();
    begin();
    fit_hull(false);
    tell_overflow();
}

static void start_op(void)
{
    uint32_t now = atomic_load_explicit(&state, memory_order_relaxed);

    if (now == ASLEEP)
        begin();
    else if (now == STALE)
        renew();
}

/* The reader waits for nobody, so this is short. Not by sched_yield(), which
 * would not let it run if we are of a real-time class. */
static void joined_op(void)
{
    static const struct timespec moment = {.tv_nsec = 20000};
    /* seq_cst K8: after our bit of live is set; pairs with K7: either that
     * round marks our queue, or we see it here */
    uint32_t was = atomic_load_explicit(&rounds, memory_order_seq_cst);

    while ((was & 1) &&
           atomic_load_explicit(&rounds, memory_order_acquire) == was)
        sys(SYS_nanosleep, &moment, NULL);
}

static bool is_lost(void)
{
    return atomic_load_explicit(&state, memory_order_relaxed) == READING &&
           atomic_load_explicit(&backstop_fd, memory_order_relaxed) < 0;
}

static void revive_op(void)
{
    if (!is_lost() &&
        atomic_load_explicit(&state, memory_order_relaxed) != STALE)
        return;
    if (lock_take(&lapse_subscribers.registry))
        return;
    if (is_lost())
        atomic_store_explicit(&state, STALE, memory_order_relaxed);
    start_op();
    lock_drop(&lapse_subscribers.registry);
}

/*
 * Every registration may split a mapping in three, and pieces that were first
 * touched apart do not become one again. The program shall not run into
 * vm.max_map_count because of us: half of it is left alone.
 */
static bool is_room(void)
{
    int64_t left;

    /* relaxed: an estimate */
    if (atomic_fetch_sub_explicit(&room, 1, memory_order_relaxed) > 0)
        return true;
    left = (int64_t)(mappings_max / 2 - backstop_mappings()) / 4;
    atomic_store_explicit(&room, left, memory_order_relaxed);
    return left > 0;
}

static void watch_op(uintptr_t start, uintptr_t end)
{
    if (atomic_load_explicit(&backstop_fd, memory_order_relaxed) < 0)
        return;
    if (is_room())
        backstop_pieces(start, end, true); /* K3: after the filter's bits */
    else
        backstop_cover(BACKSTOP_PARTLY);
}

/* Whoever met a filter in change for long, may have registered too much. That
 * costs no more than time, and is undone here, by the next to come. */
static void unwatch_op(uintptr_t start, uintptr_t end)
{
    static _Atomic uint64_t seen;
    uint64_t unsure =
        atomic_load_explicit(&filter_unsure, memory_order_seq_cst);

    if (atomic_load_explicit(&backstop_fd, memory_order_relaxed) < 0)
        return;
    if (atomic_exchange_explicit(&seen, unsure, memory_order_relaxed) !=
        unsure)
        fit_hull(true);
    backstop_fit_by(start, end, true, backstop_pieces);
}

/* The file is the parent's, and so are its events. */
static void fork_child_op(void)
{
    int fd = atomic_exchange_explicit(&backstop_fd, -1, memory_order_relaxed);
    uint32_t was = atomic_load_explicit(&state, memory_order_relaxed);

    if (fd >= 0 && backstop_is_ours(fd))
        sys(SYS_close, fd);
    hold_fork_child();
    atomic_store_explicit(&reader, 0, memory_order_relaxed);
    atomic_store_explicit(&rounds, 0, memory_order_relaxed);
    mark(0, QUEUE_COMING);
    if (was != READING && was != STALE)
        return;
    atomic_store_explicit(&state, STALE, memory_order_relaxed);
    /* Nothing is seen from here to the next call of the API. */
    release_overflow(~(uint64_t)0);
}

static const struct lapse_backstop backstop = {
    .start = start_op,
    .joined = joined_op,
    .watch = watch_op,
    .unwatch = unwatch_op,
    .fork_child = fork_child_op,
    .revive = revive_op,
};

void backstop_start(void)
{
    long fd = backstop_open();
    long at = sys(SYS_mmap, 0, PAGE_SIZE, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (fd < 0) {
        refuse(BACKSTOP_REFUSED, fd);
        return;
    }
    sys(SYS_close, fd);
    bell = (uintptr_t)at;
    mappings_max = backstop_mappings_max();
    backstop_cover(BACKSTOP_WORKS);
    lapse_backstop = &backstop;
}
