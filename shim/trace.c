/* SPDX-License-Identifier: BSD-3-Clause */
/* The file of a trace: made, ended, and another one for a forked child. */
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

#include "config.h"
#include "event.h"
#include "fork.h"
#include "inflight.h"
#include "log.h"
#include "own_file.h"
#include "range.h"
#include "sys.h"

#define KB 1024u
#define RING_KB 256u
#define RING_STACKS_KB 4096u
#define RING_KB_MIN 64u
/* Of a limit of address space; the program wants the rest. */
#define ADDRESS_SHARE 8

_Static_assert(TRACE_RINGS == IN_FLIGHT_SLOTS, "a ring for each slot");
_Static_assert(sizeof(struct trace_head) == 64, "a cache line each");

static struct own_dir directory;

uint64_t (*trace_forked)(uint64_t copied);

static uint64_t ns(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

static void read_clocks(struct trace_clock *clock)
{
    struct timespec monotonic = {0}, realtime = {0};

    sys(SYS_clock_gettime, CLOCK_REALTIME, &realtime);
    sys(SYS_clock_gettime, CLOCK_MONOTONIC, &monotonic);
    clock->ticks = trace_ticks();
    clock->monotonic = ns(&monotonic);
    clock->realtime = ns(&realtime);
}

/* What the kernel says in a file, a line or the like; "" if nothing. */
static void read_text(const char *file, char *to, size_t room)
{
    long fd = sys(SYS_openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC), len;

    if (fd < 0)
        return;
    len = sys(SYS_read, fd, to, room - 1);
    sys(SYS_close, fd);
    for (long i = 0; i < len; i++)
        if (!to[i] || to[i] == '\n')
            to[i] = i < len - 1 ? ' ' : 0;
    to[len > 0 ? len : 0] = 0;
}

static uint64_t heads_at(void)
{
    return page_up(sizeof(struct trace_header)) +
           page_up(TRACE_TYPES * sizeof(struct trace_type)) +
           TRACE_SEGMENT_BYTES;
}

static uint64_t rings_at(void)
{
    return heads_at() + TRACE_RINGS * sizeof(struct trace_head);
}

static uint64_t file_bytes(void)
{
    return rings_at() + TRACE_RINGS * lapse_trace.ring_bytes;
}

/* A block holds the largest stack that is kept, and what is said of it. */
static uint64_t ring_least(void)
{
    uint32_t kb = RING_KB_MIN;

    while (lapse_config.stacks && kb < TRACE_BLOCKS * (lapse_config.stacks + 1))
        kb *= 2;
    return (uint64_t)kb * KB;
}

static uint64_t ring_wanted(void)
{
    uint64_t bytes = ring_least();
    uint32_t kb = lapse_config.trace_ring;

    if (!kb)
        kb = lapse_config.stacks ? RING_STACKS_KB : RING_KB;
    while (bytes < (uint64_t)kb * KB)
        bytes *= 2;
    return bytes;
}

/* The file takes address space, be it sparse, and the program must not want
 * for it: where there is little, rings are smaller. False: even then. */
static bool ring_fit(void)
{
    struct rlimit limit;

    lapse_trace.ring_bytes = ring_wanted();
    if (sys(SYS_prlimit64, 0, RLIMIT_AS, NULL, &limit))
        return true;
    while (file_bytes() > limit.rlim_cur / ADDRESS_SHARE &&
           lapse_trace.ring_bytes > ring_least())
        lapse_trace.ring_bytes /= 2;
    return file_bytes() <= limit.rlim_cur / ADDRESS_SHARE;
}

static void set_header(struct trace_header *h, uint64_t bytes)
{
    long len = sys(SYS_readlink, "/proc/self/exe", h->program,
                   sizeof(h->program) - 1);

    h->program[len > 0 ? len : 0] = 0;
    h->version = TRACE_VERSION;
    h->header_bytes = sizeof(*h);
    h->file_bytes = bytes;
    h->types_at = page_up(sizeof(*h));
    h->segments_at =
        h->types_at + page_up(TRACE_TYPES * sizeof(struct trace_type));
    h->heads_at = heads_at();
    h->rings_at = rings_at();
    h->ring_bytes = lapse_trace.ring_bytes;
    h->rings = TRACE_RINGS;
    h->block_bytes = lapse_trace.block_bytes;
    h->stack_bytes = lapse_trace.stack_bytes;
    h->pid = (uint32_t)sys(SYS_getpid);
    h->ppid = (uint32_t)sys(SYS_getppid);
    sys(SYS_prctl, PR_GET_NAME, h->name);
    read_text("/proc/sys/kernel/random/boot_id", h->boot, sizeof(h->boot));
    read_text("/proc/self/cmdline", h->arguments, sizeof(h->arguments));
    read_clocks(&h->start);
}

static int file_new(void *at)
{
    uint64_t bytes = file_bytes();
    struct trace_header *h;
    void *map;
    int err = own_file_map(&directory, ".trace", bytes, at, &map);

    if (err)
        return err;
    h = map;
    if (!trace_fill(h, sizeof(*h)) ||
        !trace_fill((uint8_t *)h + heads_at(),
                    TRACE_RINGS * sizeof(struct trace_head))) {
        own_file_drop(&directory);
        if (!at)
            sys(SYS_munmap, map, bytes);
        return -ENOSPC;
    }
    set_header(h, bytes);
    lapse_trace.header = h;
    lapse_trace.heads = (struct trace_head *)((uint8_t *)map + h->heads_at);
    lapse_trace.rings = (uint8_t *)map + h->rings_at;
    /* release: pairs with the reader's first look */
    __atomic_store_n(&h->magic, TRACE_MAGIC, __ATOMIC_RELEASE);
    return 0;
}

static void warn(int err)
{
    const char *why = "error";

    if (err == -EPERM)
        why = "the directory is open to others, or theirs:";
    else if (err == -ENOMEM)
        why = "too little address space, see ulimit -v:";
    log_warn("LAPSE_TRACE=%s: no trace can be kept there (%s %d); this "
             "process has none",
             lapse_config.trace, why, -err);
}

void trace_start(void)
{
    bool fits;
    int err;

    if (!lapse_config.trace) {
        if (lapse_config.stacks)
            log_warn("LAPSE_STACKS needs LAPSE_TRACE=DIR; no stacks are kept");
        return;
    }
    fits = ring_fit();
    lapse_trace.block_bytes =
        (uint32_t)(lapse_trace.ring_bytes / TRACE_BLOCKS);
    lapse_trace.stack_bytes = lapse_config.stacks * KB;
    err = own_dir_open(&directory, lapse_config.trace);
    if (!err && !fits)
        err = -ENOMEM;
    if (!err && !fork_mark())
        err = -ENOSYS;
    if (!err)
        err = file_new(NULL);
    if (err) {
        warn(err);
        return;
    }
    lapse_observing |= OBSERVE_TRACE;
    events_start();
}

void trace_stop(void)
{
    struct trace_header *h = lapse_trace.header;

    if (!observing(OBSERVE_TRACE) || fork_was_raw())
        return;
    read_clocks(&h->stop);
    __atomic_store_n(&h->ended, 1, __ATOMIC_RELEASE);
}

/* Memory that nobody reads, in the place of a file: no limit counts it until
 * it is written to. Where even that is not to be had, all stays as it is. */
static void put_nothing(void *at, uint64_t bytes)
{
    sys(SYS_mmap, at, bytes, PROT_READ | PROT_WRITE,
        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* What this thread was writing into when the signal handler came, or its
 * encode function, that forks: it writes on in the child's file, where that
 * makes no sense (trace_commit), and needs memory there. */
static void close_held(void)
{
    uint64_t bytes = lapse_trace.ring_bytes;

    for (unsigned i = 0; i < IN_FLIGHT_SLOTS; i++) {
        struct trace_head *head = &lapse_trace.heads[i];
        uint8_t *ring = lapse_trace.rings + i * bytes;

        if (!atomic_load_explicit(&lapse_in_flight.slot[i].range,
                                  memory_order_relaxed) ||
            atomic_load_explicit(&lapse_in_flight.slot[i].owner,
                                 memory_order_relaxed) !=
                (uintptr_t)__builtin_thread_pointer())
            continue;
        head->off = TRACE_FORKED;
        if (trace_fill(ring, bytes))
            head->ready = bytes;
        else
            put_nothing(ring, bytes);
    }
}

/* The map of segments goes through memory of our own: the new file replaces
 * the parent's in one step. */
void trace_fork_child(void)
{
    static uint8_t segments[TRACE_SEGMENT_BYTES];
    struct trace_header *h = lapse_trace.header;
    uint64_t len, missed;
    int err;

    if (!observing(OBSERVE_TRACE))
        return;
    trace_forget_tid();
    len = h->segments_len;
    missed = h->segments_lost;
    if (len > sizeof(segments))
        len = sizeof(segments);
    memcpy(segments, (uint8_t *)h + h->segments_at, len);
    err = file_new(h);
    if (err) {
        /* what this thread was writing into is written to yet: it must not
         * be the parent's */
        put_nothing(h, file_bytes());
        warn(err);
        events_stop();
        lapse_observing &= ~(uint32_t)OBSERVE_TRACE;
        return;
    }
    h->segments_lost = missed;
    if (!trace_fill((uint8_t *)h + h->segments_at, len))
        len = 0;
    memcpy((uint8_t *)h + h->segments_at, segments, len);
    if (trace_forked)
        len = trace_forked(len);
    __atomic_store_n(&h->segments_len, len, __ATOMIC_RELEASE);
    close_held();
    events_start();
}
