/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lapse: be told when memory that you hold a registration of is released.
 *
 * A registration (an RDMA memory region, a pinned GPU buffer, an io_uring
 * fixed buffer) lapses when the memory under it leaves the process: munmap,
 * free that trims a heap, madvise, dlclose and so on. liblapse sees those
 * releases and tells its subscribers, without ever running their code inside
 * the release.
 *
 * The protocol of a cache, which is all most users need:
 *
 *     lookup:  if (lapse_pending(s))             // one load, inline
 *                  do {
 *                      n = lapse_poll(s, ev, 16);
 *                      if (n < 0) drop everything: the subscription is over
 *                      for (i = 0; i < n; i++)
 *                          drop_overlapping(ev[i].addr, ev[i].len);
 *                  } while (n == 16);
 *     miss:    lapse_watch(s, addr, len);        // before pinning
 *              pin(addr, len);
 *              if (lapse_pending(s)) drain;
 *              if (this range was hit)        // by a release in progress
 *                  unpin; lapse_unwatch(s, addr, len);
 *                  yield and retry, a few times; then go on uncached
 *              insert
 *     drop:    unpin; lapse_unwatch(s, addr, len);
 *
 * An event with addr 0 and len SIZE_MAX (LAPSE_REASON_OVERFLOW) overlaps
 * everything: the loop above needs no special case for it. While a release is
 * still in its system call, lapse_pending() stays true and its event, flagged
 * LAPSE_EVENT_OPEN, is handed out at every round of polling. The thread that
 * releases may be preempted before it closes that: a retry that does not yield
 * (sched_yield) would spin meanwhile, perhaps on the processor it waits for.
 *
 * Every function below states, in this order: what it returns; whether it is
 * thread-safe (MT), async-signal-safe (AS), may allocate (by mmap or malloc),
 * may be called from a callback (CB: a LAPSE_CALLBACK one, never an INLINE
 * one unless said), and what holds in a forked child (fork).
 * Functions return 0 or a count on success and -errno on failure; they leave
 * errno alone. In a child that was forked without fork()'s handlers (_Fork(),
 * clone() by hand) each that takes a handle, lapse_subscribe() and
 * lapse_drain() give -ECHILD. A handle that was never returned by
 * lapse_subscribe() gives -EBADF, one that was unsubscribed (or dropped by
 * fork) -ESTALE, always.
 */
#ifndef LAPSE_H
#define LAPSE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define LAPSE_VERSION_MAJOR 0
#define LAPSE_VERSION_MINOR 1

/* Why memory went. Used as a value in events, as 1u << reason in masks. */
enum lapse_reason {
    LAPSE_REASON_MUNMAP = 0,   /* munmap, also inside free and thread exit */
    LAPSE_REASON_REPLACE = 1,  /* MAP_FIXED, SHM_REMAP, MREMAP_FIXED target */
    LAPSE_REASON_MREMAP = 2,   /* moved away, or shrunk tail */
    LAPSE_REASON_BRK = 3,      /* the break moved down */
    LAPSE_REASON_SHMDT = 4,    /* System V segment detached */
    LAPSE_REASON_MADVISE = 5,  /* DONTNEED, FREE, REMOVE, ... */
    LAPSE_REASON_UNLOAD = 6,   /* released by the loader: dlclose */
    LAPSE_REASON_FILE = 7,     /* hole punched in, or end cut off, a file */
    LAPSE_REASON_FREE = 8,     /* free() and its like, byte-exact; seen with
                                  LAPSE_FREE=1 in the environment only */
    LAPSE_REASON_USER = 9,     /* lapse_publish() */
    LAPSE_REASON_OVERFLOW = 10 /* records were lost: everything may be gone */
};
#define LAPSE_MASK(reason) (1u << (reason))
/* All but FREE. OVERFLOW is delivered whether or not it is in the mask. */
#define LAPSE_MASK_ALL 0x6ffu

/* How a subscriber is told. */
enum lapse_delivery {
    LAPSE_POLL = 0,     /* it asks, with lapse_poll(); preferred */
    LAPSE_CALLBACK = 1, /* a thread of the library calls it, holding nothing */
    LAPSE_INLINE = 2    /* called inside the release: before it happens, with
                           LAPSE_EVENT_OPEN, and once more after it. The
                           handler must be async-signal-safe, take no lock
                           and allocate nothing. For counters and flags. A
                           handler that takes a lock can hang the process. */
};

/* Subscription flags. */
#define LAPSE_ALL 0x1u       /* every release, not only of watched ranges */
#define LAPSE_FORK_KEEP 0x2u /* lives on in a forked child (default: drop); a
                                CALLBACK one is told there from the child's
                                first lapse_ call with its handle on */

/* Event flags. */
#define LAPSE_EVENT_OPEN 0x1u     /* its system call has not returned yet */
#define LAPSE_EVENT_OVERFLOW 0x2u /* addr 0, len SIZE_MAX: all may be gone */

struct lapse_event {
    uintptr_t addr;    /* first byte, page-aligned (FREE, USER: exact) */
    size_t len;        /* bytes */
    uint64_t seq;      /* order of publication in this process, from 1; a
                          release told twice has one number, but a second
                          one where lapse_watch met it in progress */
    uint32_t reason;   /* enum lapse_reason */
    uint32_t flags;    /* LAPSE_EVENT_* */
    uint64_t spare[2]; /* 0 */
};

/* A subscription. A small value: copy it freely. {0} is no subscription. */
typedef struct lapse_handle {
    const uint64_t *word; /* private */
    uint32_t generation;  /* private */
    uint32_t index;       /* private */
} lapse_handle;

typedef void (*lapse_callback)(const struct lapse_event *event, void *arg);

struct lapse_subscription {
    size_t size;             /* sizeof(struct lapse_subscription) */
    uint32_t delivery;       /* enum lapse_delivery */
    uint32_t flags;          /* LAPSE_ALL, LAPSE_FORK_KEEP */
    uint32_t reasons;        /* mask of reasons; 0 means LAPSE_MASK_ALL */
    uint32_t spare;          /* 0 */
    lapse_callback callback; /* CALLBACK and INLINE; else NULL */
    void *arg;               /* passed to it */
};

/*
 * Begin to be told. When it returns, every release that begins in any thread
 * sees the subscriber. The module that contains the callback is kept loaded
 * until unsubscribed.
 * Returns 0; -EINVAL (bad argument, callback missing or not wanted), -ENOTSUP
 * (FREE asked for, and not seen here: LAPSE_FREE=1 was not in the environment
 * at start, or no allocator could be patched; the rows "free" of
 * lapse_coverage() say which), -ENOSPC (64 subscriptions),
 * -ENOMEM, -EAGAIN (no thread could be made for CALLBACK), -EEXIST (this is a
 * second copy of the library in one process: the first is the one to ask).
 * MT yes; AS no; allocates; CB yes; fork: usable in the child.
 */
int lapse_subscribe(const struct lapse_subscription *how, lapse_handle *out);

/*
 * Stop being told. When it returns, no callback of this subscription runs or
 * will run; called from that callback itself, this holds once it returned.
 * Must not be called with a lock held that the callback takes. Its watches
 * are forgotten.
 * Returns 0; -EBADF, -ESTALE.
 * MT yes; AS no; does not allocate; CB yes (own and others'); fork: usable.
 */
int lapse_unsubscribe(lapse_handle s);

/*
 * Say that [addr, addr + len), rounded outward to pages, is about to be
 * registered. Call it before pinning. Counted: a page watched twice needs two
 * unwatches. A release in progress right now that overlaps is reported as
 * pending before lapse_watch returns. Of no use with LAPSE_ALL, but allowed.
 * Returns 0; -EINVAL (NULL, zero length, wraps, outside user space), -ENOMEM
 * (nothing changed), -EOVERFLOW (2^32 watches of one page), -EDEADLK (from a
 * signal handler that interrupted this library); -EBADF, -ESTALE.
 * MT yes; AS no; allocates (mmap, never malloc); CB yes; fork: usable.
 */
int lapse_watch(lapse_handle s, const void *addr, size_t len);

/*
 * Take one watch of every page of the range back. The range need not be one
 * that was watched as such; each page of it must be watched.
 * Returns 0; -ENOENT (some page was not watched; nothing changed), -EINVAL,
 * -ENOMEM (a part of a large watch taken back; nothing changed), -EDEADLK;
 * -EBADF, -ESTALE. MT yes; AS no; allocates (mmap); CB yes; fork: usable.
 */
int lapse_unwatch(lapse_handle s, const void *addr, size_t len);

/*
 * Is there anything to be told? One load. True also for a handle that is
 * stale or empty, whose next call then says so.
 * MT yes; AS yes; allocates nothing; CB yes (INLINE too); fork: usable.
 */
static inline bool lapse_pending(lapse_handle s)
{
    return !s.word || __atomic_load_n(s.word, __ATOMIC_ACQUIRE) !=
                          (uint64_t)s.generation << 32;
}

/*
 * Fetch up to n events of a LAPSE_POLL subscription, oldest first. An event
 * flagged OPEN comes again: in every later round, and once after it closed.
 * A round ends when fewer than n are returned.
 * Returns the number stored, 0 when none waits; -EINVAL (no buffer, or not a
 * POLL subscription), -EDEADLK (from a signal handler that interrupted this
 * library); -EBADF, -ESTALE.
 * MT yes; AS no; allocates nothing; CB yes; fork: usable in the child.
 */
int lapse_poll(lapse_handle s, struct lapse_event *events, size_t n);

/*
 * Returns when everything published before the call was told. For CALLBACK
 * the calling thread helps: callbacks may run on it, so call it with no lock
 * held that the callback takes. For INLINE there is never anything to wait
 * for. An OPEN record counts as told; it is told again once closed.
 * Returns 0; -EAGAIN (a POLL subscription with events waiting: poll it),
 * -EDEADLK (from inside a callback); -EBADF, -ESTALE.
 * MT yes; AS no; allocates nothing; CB no; fork: usable in the child.
 */
int lapse_sync(lapse_handle s);

/*
 * lapse_sync() of every CALLBACK subscription there is.
 * Returns 0; -EDEADLK. Otherwise as lapse_sync.
 */
int lapse_drain(void);

/*
 * A file descriptor (an eventfd, close-on-exec) that is readable while events
 * wait, for poll/epoll loops. Owned by the library: never read, write or
 * close it. lapse_poll() makes it unreadable again.
 * Returns the descriptor, the same one every time; -EINVAL (not POLL), or
 * what eventfd says; -EBADF, -ESTALE.
 * MT yes; AS no; allocates nothing; CB yes; fork: the child has its own, ask
 * again.
 */
int lapse_fd(lapse_handle s);

/*
 * Does any subscriber watch some page of [addr, addr + len)? For allocators
 * that would rather keep such memory than give it back. The answer may be old
 * when it is there; yes may be said wrongly while a watch nearby is removed.
 * Returns 1, 0; -EINVAL (NULL, zero length, wraps, outside user space).
 * MT yes; AS yes; takes no lock; allocates nothing; CB yes (INLINE too);
 * fork: usable.
 */
int lapse_watched(const void *addr, size_t len);

/*
 * For runtimes with a pool of their own, or that make raw system calls: say
 * that [addr, addr + len) is released. lapse_publish tells of a release that
 * is over for all others only after this call (memory given back to a pool).
 * Around a system call use begin and end: between the two, the release is
 * open. Begin and end must be called on one thread and may nest.
 * Returns 0; -EINVAL (NULL, zero length, wraps, outside user space).
 * MT yes; AS yes; allocates nothing; CB yes (INLINE too); fork: usable.
 */
int lapse_publish(const void *addr, size_t len);

typedef struct lapse_release {
    uint64_t private_[2];
} lapse_release;
int lapse_publish_begin(const void *addr, size_t len, lapse_release *release);
int lapse_publish_end(lapse_release *release);

/*
 * A thread that the program does not know of, for caches that need one: all
 * signals are blocked in it, and the process does not wait for it. When the
 * last of the other threads ends, exit(0) is called there, as it would be
 * without this one.
 */
struct lapse_thread {
    void *(*start)(void *);
    void *arg;
};

/*
 * Make one; *what must stay as it is until the thread has ended. *out is to be
 * joined; out NULL: the thread is detached.
 * Returns 0; -EINVAL (no function), what pthread_create() says (-EAGAIN).
 * MT yes; AS no; allocates (as pthread_create() does); CB yes; fork: the
 * thread is not in the child, which may make its own.
 */
int lapse_thread_start(const struct lapse_thread *what, pthread_t *out);

/* One way memory can leave the process, and whether it is seen here. */
enum lapse_mechanism {
    LAPSE_UNCOVERED = 0, /* not seen; detail says why */
    LAPSE_SITE = 1,      /* the instruction that enters the kernel is patched */
    LAPSE_CHAINED = 2,   /* patched behind somebody else's patch */
    LAPSE_ASKED = 3,     /* reported by its owner with lapse_publish */
    LAPSE_ABSENT = 4,    /* this process has no such code: nothing to see */
    LAPSE_ENTRY = 5,     /* the entry of the function is patched */
    LAPSE_KERNEL = 6     /* the kernel tells (userfaultfd), in watched ranges */
};
struct lapse_coverage {
    const char *path;   /* e.g. "munmap" */
    const char *where;  /* e.g. "libc.so.6" */
    const char *detail; /* why not, or "" */
    uint32_t mechanism; /* enum lapse_mechanism */
    uint32_t spare;
};

/*
 * Fill up to n rows; strings live as long as the process.
 * Returns the number of rows there are (may exceed n); -EINVAL.
 * MT yes; AS yes; allocates nothing; CB yes; fork: usable.
 */
int lapse_coverage(struct lapse_coverage *rows, size_t n);

/* Counters, by the system call that released. */
enum lapse_path {
    LAPSE_PATH_MUNMAP,
    LAPSE_PATH_MMAP,
    LAPSE_PATH_MREMAP,
    LAPSE_PATH_BRK,
    LAPSE_PATH_MADVISE,
    LAPSE_PATH_SHMDT,
    LAPSE_PATH_SHMAT,
    LAPSE_PATH_PROCESS_MADVISE,
    LAPSE_PATH_REMAP_FILE_PAGES,
    LAPSE_PATH_FALLOCATE,
    LAPSE_PATH_FTRUNCATE,
    LAPSE_PATH_TRUNCATE,
    LAPSE_PATH_OPEN,     /* open, openat, creat with O_TRUNC */
    LAPSE_PATH_PUBLISH,  /* lapse_publish */
    LAPSE_PATH_FREE,     /* LAPSE_FREE=1: free and its like; counted only in
                            reporting mode, without callers */
    LAPSE_PATH_BACKSTOP, /* LAPSE_BACKSTOP=uffd: seen by the kernel alone */
    LAPSE_PATH_COUNT
};
#define LAPSE_PATH_MAX 24 /* room for paths to come */
struct lapse_path_stats {
    uint64_t calls;            /* calls that came by, releasing or not */
    uint64_t releases;         /* those that could release something */
    uint64_t bytes;            /* page-rounded bytes of those */
    uint64_t inside_allocator; /* releases made by malloc, free and the like */
    uint64_t inside_loader;    /* releases made by ld.so */
    uint64_t inside_libc;      /* releases made elsewhere in libc (stacks) */
};
struct lapse_stats {
    size_t size; /* in: sizeof(struct lapse_stats) */
    struct lapse_path_stats path[LAPSE_PATH_MAX];
    uint64_t published;       /* records put into subscribers' queues */
    uint64_t filtered;        /* looked up in a filter, and not watched;
                                 what is far from all watches is not
                                 looked up */
    uint64_t delivered;       /* events handed to subscribers */
    uint64_t overflowed;      /* times a queue collapsed into OVERFLOW; one
                                 OVERFLOW event may stand for several */
    uint64_t pool_size;       /* records preallocated */
    uint64_t pool_high;       /* most in use at once */
    uint64_t in_flight_high;  /* most releases in progress at once */
    uint64_t subscribers;     /* now */
    uint64_t watch_bytes;     /* memory that watches take now */
    uint64_t spare[7];
};

/*
 * A snapshot; counters that move meanwhile may be torn apart by a few.
 * inside_* are counted only in reporting mode (`lapse run`), else 0.
 * Returns 0; -EINVAL.
 * MT yes; AS yes; allocates nothing; CB yes; fork: a child counts from 0.
 */
int lapse_stats(struct lapse_stats *out);

/*
 * Events of the program's own, in the trace that LAPSE_TRACE=DIR keeps
 * (lapse-trace(5)), between the releases, in the order of time.
 */

/* Bytes that an event has at most. */
#define LAPSE_EVENT_MAX 4096

/*
 * Writes what `event` points at into the buffer. Returns how many bytes it
 * wrote, at most room; more than room: nothing is kept. Runs where
 * lapse_event_write() was called, holding nothing; it must return, and may
 * call lapse_event_write() itself.
 */
typedef size_t (*lapse_event_encode)(void *buffer, size_t room,
                                     const void *event);

/* A type of events. {0} is none. */
typedef struct lapse_event_type {
    uint32_t index; /* private */
} lapse_event_type;

extern uint32_t lapse_trace_on; /* private */

/*
 * Is a trace kept? One load: for who would rather not collect what nobody
 * reads. lapse_event_write() asks itself.
 * MT yes; AS yes; allocates nothing; CB yes (INLINE too); fork: usable.
 */
static inline bool lapse_tracing(void)
{
    return __atomic_load_n(&lapse_trace_on, __ATOMIC_RELAXED) != 0;
}

/*
 * Make a type of events known, by its name (up to 63 bytes). layout says what
 * encode writes, for who prints it: fields "name:type", a blank between them,
 * of the types u8 u16 u32 u64 i8 i16 i32 i64 (numbers), x8 x16 x32 x64 (in
 * hex), f64, str (the rest, text); they lie one behind the other without gaps.
 * NULL: bytes. Up to 183 bytes long. Works without a trace, too. The module
 * that encode is of stays loaded from now on, and so does the type.
 * Returns 0; -EINVAL (no name, no encode, too long), -ENOSPC (256 types),
 * -ECHILD. MT yes; AS no; may allocate; CB yes; fork: the child has it too.
 */
int lapse_event_register(const char *name, const char *layout,
                         lapse_event_encode encode, lapse_event_type *out);

/*
 * Write an event; encode is called with it, if a trace is kept. It is whole in
 * the trace when this returns 0. Old ones are overwritten, never waited for.
 * Returns 0 (also without a trace); -EBADF (lapse_event_register() did not
 * give this type), -EMSGSIZE (encode had more than room), -ENOSPC (no memory
 * for it; counted in the trace), -ECHILD (in a child forked without fork's
 * handlers, or in the middle of this write). MT yes; AS yes, if encode is, also
 * interrupting a write or an encode of the same type; allocates nothing; CB yes
 * (INLINE too); fork: usable.
 */
int lapse_event_write(lapse_event_type type, const void *event);

/* Names for people: "munmap", "overflow"; "?" when unknown. AS-safe. */
const char *lapse_reason_name(unsigned reason);
const char *lapse_path_name(unsigned path);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
