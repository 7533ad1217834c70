/* SPDX-License-Identifier: BSD-3-Clause */
#include "case_uring.h"

#include <linux/io_uring.h>
#include <sched.h>
#include <sys/syscall.h>

#include "case.h"

#define ENTRIES 64
#define BATCH 16
#define LOG_MAX 65536
#define TRIES 100000

/* Read by callbacks: a mixture of old and new marks too much at worst. */
static struct entry {
    char *_Atomic addr;
    atomic_size_t len;
    atomic_bool dead;
} entries[ENTRIES];
static unsigned next_victim;
unsigned long cache_hits, cache_misses;

static lapse_handle sub;
static uint32_t how_told;
static bool at_once;
static struct lapse_event told_log[LOG_MAX];
static atomic_uint told_count, told_from;

static struct {
    int fd;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *sqe;
    struct io_uring_cqe *cqe;
} ring;
static int file;
static char *written; /* the file, mapped */

static void skip(const char *what)
{
    printf("skipped: %s: %s\n", what, strerror(errno));
    fflush(stdout);
    _exit(77);
}

/* A length of 0 takes it out. */
static void set_buffer(int slot, void *addr, size_t len)
{
    struct iovec v = {len ? addr : NULL, len};
    struct io_uring_rsrc_update2 update = {
        .offset = (unsigned)slot, .data = (uintptr_t)&v, .nr = 1};

    if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS_UPDATE,
                &update, sizeof update) != 1)
        skip("registering a fixed buffer (RLIMIT_MEMLOCK?)");
}

/* Nothing is locked or allocated here: it may run on any thread. */
static void on_event(const struct lapse_event *e, void *arg)
{
    unsigned i = atomic_fetch_add(&told_count, 1);

    (void)arg;
    if (i < LOG_MAX)
        told_log[i] = *e;
    for (struct entry *n = entries; n < entries + ENTRIES; n++)
        if (n->len && event_overlaps(e, n->addr, n->len))
            if (!atomic_exchange(&n->dead, true) && at_once)
                set_buffer((int)(n - entries), NULL, 0);
}

static void drain(void)
{
    struct lapse_event events[BATCH];
    int n;

    if (!with_library())
        return;
    if (how_told == LAPSE_CALLBACK) {
        need(lapse_sync(sub) == 0, "lapse_sync");
        return;
    }
    if (!lapse_pending(sub))
        return;
    do {
        n = lapse_poll(sub, events, BATCH);
        need(n >= 0, "lapse_poll");
        for (int i = 0; i < n; i++)
            on_event(&events[i], NULL);
    } while (n == BATCH);
}

static void open_ring(void)
{
    struct io_uring_params p = {0};
    struct io_uring_rsrc_register table = {
        .nr = ENTRIES, .flags = IORING_RSRC_REGISTER_SPARSE};
    char *rings;
    size_t size;

    ring.fd = (int)syscall(SYS_io_uring_setup, 4, &p);
    if (ring.fd < 0)
        skip("io_uring_setup");
    if (!(p.features & IORING_FEAT_SINGLE_MMAP))
        skip("io_uring without a single mapping of both rings");
    size = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    if (p.cq_off.cqes + p.cq_entries * sizeof(*ring.cqe) > size)
        size = p.cq_off.cqes + p.cq_entries * sizeof(*ring.cqe);
    rings = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd,
                 IORING_OFF_SQ_RING);
    ring.sqe =
        mmap(NULL, p.sq_entries * sizeof(*ring.sqe), PROT_READ | PROT_WRITE,
             MAP_SHARED, ring.fd, IORING_OFF_SQES);
    need(rings != MAP_FAILED && ring.sqe != MAP_FAILED, "mmap of the rings");
    ring.sq_tail = (unsigned *)(rings + p.sq_off.tail);
    ring.sq_mask = (unsigned *)(rings + p.sq_off.ring_mask);
    ring.sq_array = (unsigned *)(rings + p.sq_off.array);
    ring.cq_head = (unsigned *)(rings + p.cq_off.head);
    ring.cq_tail = (unsigned *)(rings + p.cq_off.tail);
    ring.cq_mask = (unsigned *)(rings + p.cq_off.ring_mask);
    ring.cqe = (struct io_uring_cqe *)(rings + p.cq_off.cqes);
    if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS2,
                &table, sizeof table))
        skip("a table of fixed buffers");
}

static void write_fixed(int slot, void *addr, size_t len)
{
    unsigned tail = *ring.sq_tail, head;
    unsigned at = tail & *ring.sq_mask;
    struct io_uring_cqe *done;

    ring.sqe[at] = (struct io_uring_sqe){.opcode = IORING_OP_WRITE_FIXED,
                                         .fd = file,
                                         .addr = (uintptr_t)addr,
                                         .len = (unsigned)len,
                                         .buf_index = (uint16_t)slot};
    ring.sq_array[at] = at;
    __atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
    while (syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS,
                   NULL, 0) < 0)
        need(errno == EINTR, "io_uring_enter");
    head = *ring.cq_head;
    need(__atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE) != head,
         "a completion");
    done = &ring.cqe[head & *ring.cq_mask];
    errno = done->res < 0 ? -done->res : EIO;
    need(done->res == (int)len, "WRITE_FIXED");
    __atomic_store_n(ring.cq_head, head + 1, __ATOMIC_RELEASE);
}

static void drop(struct entry *n)
{
    set_buffer((int)(n - entries), NULL, 0);
    if (with_library())
        need(lapse_unwatch(sub, n->addr, n->len) == 0, "lapse_unwatch");
    n->len = 0;
}

/* Free, or the next in turn. */
static struct entry *take_entry(void)
{
    struct entry *n;

    for (n = entries; n < entries + ENTRIES; n++)
        if (!n->len)
            return n;
    n = &entries[next_victim++ % ENTRIES];
    drop(n);
    return n;
}

/*
 * As long as another thread is still in a release of these addresses, what is
 * registered counts as lapsed: that thread may wait for a processor.
 */
static void pin(struct entry *n, char *p, size_t len)
{
    for (int i = 0; i < TRIES; i++) {
        n->addr = p;
        atomic_store(&n->dead, false);
        n->len = len;
        if (with_library())
            need(lapse_watch(sub, p, len) == 0, "lapse_watch");
        set_buffer((int)(n - entries), p, len);
        drain();
        if (!atomic_load(&n->dead))
            return;
        drop(n);
        sched_yield();
    }
    need(false, "a registration that lapses each time it is made");
}

int cache_lookup(void *p, size_t len)
{
    struct entry *n;

    drain();
    for (n = entries; n < entries + ENTRIES; n++)
        if (n->len && atomic_load(&n->dead))
            drop(n);
    for (n = entries; n < entries + ENTRIES; n++)
        if (n->addr == p && n->len == len) {
            cache_hits++;
            return (int)(n - entries);
        }
    cache_misses++;
    n = take_entry();
    pin(n, p, len);
    return (int)(n - entries);
}

size_t cache_stale(void *p, size_t len)
{
    size_t stale = 0;

    need(len <= CACHE_LEN_MAX, "a smaller buffer");
    write_fixed(cache_lookup(p, len), p, len);
    for (size_t at = 0; at < len; at += PAGE) {
        size_t n = len - at < PAGE ? len - at : PAGE;

        stale += memcmp(written + at, (char *)p + at, n) != 0;
    }
    return stale;
}

void cache_forget(void)
{
    drain();
    atomic_store(&told_from, atomic_load(&told_count));
}

unsigned cache_told(void)
{
    drain();
    return atomic_load(&told_count) - atomic_load(&told_from);
}

bool cache_covered(const void *p, size_t len)
{
    uintptr_t start = (uintptr_t)p & -PAGE;
    uintptr_t end = ((uintptr_t)p + len + PAGE - 1) & -PAGE;
    unsigned n = cache_told(), from = atomic_load(&told_from);
    bool all = true;

    need(from + n <= LOG_MAX, "room in the log");
    for (uintptr_t page = start; page < end; page += PAGE) {
        bool found = false;

        for (unsigned i = from; i < from + n; i++)
            found |= event_overlaps(&told_log[i], (void *)page, PAGE);
        all &= found;
    }
    for (unsigned i = from; i < from + n; i++)
        if (told_log[i].addr < start ||
            told_log[i].addr + told_log[i].len > end) {
            printf("        told %#lx+%#zx, released %#lx+%#lx\n",
                   told_log[i].addr, told_log[i].len, start, end - start);
            all = false;
        }
    return all;
}

void cache_unpin_at_once(bool yes)
{
    at_once = yes;
}

void cache_start(uint32_t delivery)
{
    how_told = delivery;
    open_ring();
    file = memfd_create("written", MFD_CLOEXEC);
    need(file >= 0 && ftruncate(file, CACHE_LEN_MAX) == 0, "memfd");
    written = mmap(NULL, CACHE_LEN_MAX, PROT_READ, MAP_SHARED, file, 0);
    need(written != MAP_FAILED, "mmap");
    if (with_library())
        sub = subscribe(delivery, 0,
                        delivery == LAPSE_CALLBACK ? on_event : NULL, NULL);
}

void cache_stop(void)
{
    for (struct entry *n = entries; n < entries + ENTRIES; n++)
        if (n->len)
            drop(n);
    if (with_library())
        check(lapse_unsubscribe(sub) == 0, "unsubscribed");
    close(ring.fd);
}
