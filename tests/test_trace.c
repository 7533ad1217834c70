/* SPDX-License-Identifier: BSD-3-Clause */
/* The trace: its file, and writing into rings. */
#include "shim/trace.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/config.h"
#include "shim/inflight.h"
#include "shim/trace_slot.h"
#include "tests/trace_ring.h"
#include "tests/unit.h"

static char dir[64];

static void start_with(const char *ring, const char *more)
{
    static char trace[96], none[] = "";
    char *environment[] = {trace, ring ? (char *)ring : none, (char *)more,
                           NULL};

    strcpy(dir, "/tmp/lapse-trace-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    snprintf(trace, sizeof(trace), "LAPSE_TRACE=%s", dir);
    shim_start(environment);
}

static void start(void)
{
    start_with("LAPSE_TRACE_RING=64", NULL);
    cr_assert(observing(OBSERVE_TRACE));
}

static void name_of(char *name, size_t room, pid_t pid)
{
    snprintf(name, room, "%s/%d.0.trace", dir, (int)pid);
}

static void end(void)
{
    char name[96];

    name_of(name, sizeof(name), getpid());
    unlink(name);
    rmdir(dir);
}

struct sum {
    uint64_t count, bad;
    struct trace_told last;
    uint32_t bytes;
};

static void take(unsigned ring, const struct trace_record *r, void *arg)
{
    struct sum *s = arg;
    const uint8_t *data = (const uint8_t *)(r + 1);

    (void)ring;
    s->count++;
    s->bytes = r->bytes;
    if (r->kind != TRACE_USER) {
        memcpy(&s->last, r, sizeof(s->last));
        return;
    }
    for (uint32_t i = 0; i < r->bytes - sizeof(*r); i++)
        if (data[i] != (uint8_t)r->number)
            s->bad++;
}

static struct sum read_ring(unsigned ring)
{
    struct sum s = {0};
    uint64_t first;

    cr_assert(trace_ring_each(lapse_trace.header, ring, take, &s, &first));
    cr_assert_eq(first + s.count, trace_ring_head(lapse_trace.header,
                                                  ring)->next);
    return s;
}

/* A record full of its number's last byte. */
static void put(unsigned slot, uint32_t asked, uint32_t used)
{
    struct trace_record *r = trace_reserve(slot, TRACE_USER, asked);

    cr_assert_not_null(r);
    memset(r + 1, (uint8_t)r->number, asked - sizeof(*r));
    trace_commit(slot, r, used);
}

Test(trace, file_is_private_and_whole, .init = start, .fini = end)
{
    const struct trace_header *h = lapse_trace.header;
    char name[96];
    struct stat st;

    name_of(name, sizeof(name), getpid());
    cr_assert_eq(stat(name, &st), 0);
    cr_expect_eq(st.st_mode & 07777, 0600);
    cr_expect_eq((uint64_t)st.st_size, h->file_bytes);
    cr_expect_lt(st.st_blocks * 512, 1 << 20, "sparse");
    cr_expect_eq(h->magic, TRACE_MAGIC);
    cr_expect_eq(h->pid, getpid());
    cr_expect_eq(h->ring_bytes, 64 << 10);
    cr_expect_eq(h->rings_at % 4096, 0);
    cr_expect_eq(h->rings_at + h->rings * h->ring_bytes, h->file_bytes);
    cr_expect_neq(h->start.ticks, 0);
    cr_expect_eq(strlen(h->boot), 36);
    cr_expect_eq(h->ended, 0);
    trace_stop();
    cr_expect_eq(h->ended, 1);
    cr_expect_geq(h->stop.monotonic, h->start.monotonic);
}

Test(trace, wraps_and_counts, .init = start, .fini = end)
{
    uint32_t sizes[] = {64, 96, 4000, 4160, 1024, 64, 2080};
    uint64_t n = 0;
    struct sum s;

    for (unsigned lap = 0; lap < 400; lap++) {
        for (unsigned i = 0; i < 7; i++, n++)
            put(3, sizes[i], sizes[i]);
        s = read_ring(3);
        cr_assert_eq(s.bad, 0);
        cr_assert_eq(trace_ring_head(lapse_trace.header, 3)->next, n);
    }
    cr_expect_gt(s.count, 10);
    cr_expect_lt(s.count, n);
}

/* Room that was asked for and not used is written over all the same: what lay
 * there before is gone. */
Test(trace, unused_room_is_not_read_as_old, .init = start, .fini = end)
{
    for (unsigned i = 0; i < 10000; i++) {
        put(0, 4096, 64 + 32 * (i % 50));
        cr_assert_eq(read_ring(0).bad, 0);
    }
}

/* Reserved, and never committed: as after SIGKILL. */
Test(trace, half_written_is_not_there, .init = start, .fini = end)
{
    for (unsigned i = 0; i < 1000; i++) {
        struct trace_record *r;

        for (unsigned j = 0; j < i % 7; j++)
            put(1, 4096, 4096);
        r = trace_reserve(1, TRACE_USER, 4096);
        memset(r + 1, 0xff, 4096 - sizeof(*r));
        cr_assert_eq(read_ring(1).bad, 0);
    }
}

Test(trace, subscribers_are_in_it, .init = start, .fini = end)
{
    lapse_handle h = unit_poller(0);
    struct lapse_event e[4];
    struct sum s;

    lapse_watch(h, unit_at(1), UNIT_PAGE);
    s = read_ring(0);
    cr_expect_eq(s.last.head.kind, TRACE_WATCH);
    cr_expect_eq(s.last.start, (uintptr_t)unit_at(1));
    cr_expect_eq(s.last.head.tid, syscall(SYS_gettid));
    lapse_publish(unit_at(0), 3 * UNIT_PAGE);
    s = read_ring(0);
    cr_expect_eq(s.count, 3, "watch, publish, release");
    cr_expect_eq(s.last.head.kind, TRACE_RELEASE);
    cr_expect_eq(s.last.end, (uintptr_t)unit_at(3));
    cr_assert_eq(lapse_poll(h, e, 4), 1);
    s = read_ring(0);
    cr_expect_eq(s.last.head.kind, TRACE_DELIVER);
    cr_expect_eq(s.last.seq, e[0].seq);
    lapse_unwatch(h, unit_at(1), UNIT_PAGE);
    cr_expect_eq(read_ring(0).last.head.kind, TRACE_UNWATCH);
    cr_expect_eq(read_ring(0).count, 5);
}

/* A handler that interrupts a writer writes elsewhere. */
Test(trace, nested_writers_have_rings_of_their_own, .init = start,
     .fini = end)
{
    struct trace_slot outer, inner;
    struct trace_record *a, *b;

    cr_assert(trace_slot_take(&outer));
    a = trace_reserve(trace_slot_number(&outer), TRACE_USER, 64);
    cr_assert(trace_slot_take(&inner));
    cr_assert_neq(trace_slot_number(&inner), trace_slot_number(&outer));
    b = trace_reserve(trace_slot_number(&inner), TRACE_USER, 64);
    cr_assert(a && b);
    memset(a + 1, 0, 32);
    memset(b + 1, 0, 32);
    trace_commit(trace_slot_number(&inner), b, 64);
    trace_slot_give(&inner);
    trace_commit(trace_slot_number(&outer), a, 64);
    trace_slot_give(&outer);
    cr_expect_eq(lapse_hint.depth, 0);
    cr_expect_eq(read_ring(0).count, 1);
    cr_expect_eq(read_ring(1).count, 1);
}

static size_t encode(void *buffer, size_t room, const void *event)
{
    (void)event;
    memset(buffer, 7, room / 32);
    return room / 32;
}

static void *write_events(void *type)
{
    for (int i = 0; i < 5000; i++)
        cr_assert_eq(lapse_event_write(*(lapse_event_type *)type, NULL), 0);
    return NULL;
}

/* Rings are handed from thread to thread. */
Test(trace, threads_write_events, .init = start, .fini = end)
{
    lapse_event_type type;
    pthread_t thread[4];
    uint64_t written = 0;

    cr_assert_eq(lapse_event_register("e", NULL, encode, &type), 0);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, write_events, &type), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    for (unsigned i = 0; i < 8; i++) {
        struct sum s = {0};
        uint64_t first;

        cr_assert(trace_ring_each(lapse_trace.header, i, take, &s, &first));
        written += first + s.count;
    }
    cr_assert_eq(written, 20000);
    cr_assert_eq(lapse_trace.header->lost, 0);
}

Test(trace, without_a_slot_it_is_counted, .init = start, .fini = end)
{
    struct trace_slot all[TRACE_RINGS], more;

    for (unsigned i = 0; i < TRACE_RINGS; i++)
        cr_assert(trace_slot_take(&all[i]));
    cr_expect_not(trace_slot_take(&more));
    cr_expect_eq(lapse_trace.header->lost, 1);
    for (unsigned i = 0; i < TRACE_RINGS; i++)
        trace_slot_give(&all[i]);
    cr_expect(trace_slot_take(&more));
}

static int child_of(pid_t pid)
{
    int status;

    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(trace, forked_child_has_its_own, .init = start, .fini = end)
{
    char name[96];
    pid_t pid;
    int got;

    lapse_publish(unit_at(0), UNIT_PAGE);
    pid = fork();
    if (!pid) {
        lapse_publish(unit_at(1), UNIT_PAGE);
        _exit((int)read_ring(0).count |
              (lapse_trace.header->pid == (uint32_t)getpid()) << 4 |
              (read_ring(0).last.head.tid == (uint32_t)getpid()) << 5);
    }
    got = child_of(pid);
    cr_expect_eq(got, 0x31, "%x", (unsigned)got);
    cr_expect_eq(read_ring(0).count, 1);
    name_of(name, sizeof(name), pid);
    cr_expect_eq(unlink(name), 0);
}

/* By hand: the file is the parent's, nothing may be written. */
Test(trace, raw_child_writes_nothing, .init = start, .fini = end)
{
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

    if (!pid) {
        lapse_publish(unit_at(1), UNIT_PAGE);
        syscall(SYS_exit_group, 7);
    }
    cr_assert_eq(child_of(pid), 7);
    cr_expect_eq(read_ring(0).count, 0);
    cr_expect_eq(lapse_trace.header->lost, 0);
    lapse_publish(unit_at(1), UNIT_PAGE);
    cr_expect_eq(read_ring(0).count, 1);
}

/* As encode does that forks, or a signal handler that interrupts a writer: the
 * child ends that record for nothing, and then the ring is a new one. */
Test(trace, fork_in_the_middle_of_a_record, .init = start, .fini = end)
{
    struct trace_slot slot;
    struct trace_record *r;
    char name[96];
    bool good;
    unsigned n;
    pid_t pid;

    put(0, 4096, 4096);
    cr_assert(trace_slot_take(&slot));
    n = trace_slot_number(&slot);
    r = trace_reserve(n, TRACE_USER, 4096);
    pid = fork();
    if (!pid) {
        const struct trace_head *head =
            trace_ring_head(lapse_trace.header, n);

        memset(r + 1, 0xff, 4096 - sizeof(*r));
        good = head->off == TRACE_FORKED && !trace_commit(n, r, 4096) &&
               !head->end;
        trace_slot_give(&slot);
        lapse_publish(unit_at(1), UNIT_PAGE);
        _exit(good && head->off == TRACE_ON && read_ring(n).count == 1 &&
                      !lapse_trace.header->lost
                  ? 7
                  : 1);
    }
    memset(r + 1, (uint8_t)r->number, 4096 - sizeof(*r));
    cr_expect(trace_commit(n, r, 4096));
    trace_slot_give(&slot);
    cr_expect_eq(child_of(pid), 7);
    cr_expect_eq(read_ring(n).count, 2);
    cr_expect_eq(read_ring(n).bad, 0);
    name_of(name, sizeof(name), pid);
    cr_expect_eq(unlink(name), 0);
}

/* What a child ends that has no file, or that fork() did not make, is not in
 * its parent's file. by_hand: by clone(). */
static void end_it_twice(bool by_hand)
{
    struct trace_record *r = trace_reserve(0, TRACE_USER, 4096);
    uint64_t at = trace_ring_head(lapse_trace.header, 0)->end;
    pid_t pid = by_hand ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)
                        : fork();

    if (!pid) {
        if (!by_hand)
            memset(r + 1, 0xff, 4096 - sizeof(*r));
        syscall(SYS_exit_group, trace_commit(0, r, 4096) ? 1 : 7);
    }
    memset(r + 1, (uint8_t)r->number, 4096 - sizeof(*r));
    cr_expect_eq(child_of(pid), 7);
    cr_expect_eq(trace_ring_head(lapse_trace.header, 0)->end, at);
    cr_expect(trace_commit(0, r, 4096));
    cr_expect_eq(read_ring(0).count, 1);
    cr_expect_eq(read_ring(0).bad, 0);
}

Test(trace, raw_child_ends_no_record, .init = start, .fini = end)
{
    end_it_twice(true);
}

Test(trace, child_without_a_file_ends_no_record, .init = start, .fini = end)
{
    char away[80];

    snprintf(away, sizeof(away), "%s-away", dir);
    cr_assert_eq(rename(dir, away), 0);
    end_it_twice(false);
    cr_assert_eq(rename(away, dir), 0);
}

/* With the memory of the thread that waits, and as a process of its own. */
Test(trace, vfork_child_leaves_no_number, .init = start, .fini = end)
{
    pid_t pid;

    if (THREAD_SANITIZER)
        cr_skip("vfork is fork there");
    trace_forget_tid();
    pid = vfork();
    if (!pid) {
        lapse_publish(unit_at(1), UNIT_PAGE);
        _exit(7);
    }
    cr_assert_eq(child_of(pid), 7);
    lapse_publish(unit_at(1), UNIT_PAGE);
    cr_expect_eq(read_ring(0).count, 2);
    cr_expect_eq(read_ring(0).last.head.tid, syscall(SYS_gettid));
}

static volatile pid_t forked;

static void fork_here(int signal)
{
    (void)signal;
    forked = fork();
    if (!forked)
        _exit(7);
}

static int fork_on_a_small_stack(void)
{
    struct sigaction action = {.sa_handler = fork_here,
                               .sa_flags = SA_ONSTACK};
    char *guard = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
                       -1, 0);
    stack_t stack = {.ss_sp = guard + (1 << 15),
                     .ss_size = getauxval(AT_MINSIGSTKSZ) + 3072};
    char name[96];
    int got;

    if (mprotect(stack.ss_sp, 1 << 15, PROT_READ | PROT_WRITE) ||
        sigaltstack(&stack, NULL) || sigaction(SIGUSR1, &action, NULL))
        return 1;
    raise(SIGUSR1);
    got = child_of(forked);
    name_of(name, sizeof(name), forked);
    return unlink(name) ? 2 : got;
}

/* Crash handlers fork, and their stacks are small. In a child, as the loader
 * has bound there what it calls after fork, for which it wants more. */
Test(trace, fork_needs_little_stack, .init = start, .fini = end)
{
    char name[96];
    pid_t pid;

    if (THREAD_SANITIZER)
        cr_skip("its own part of fork wants a larger stack");
    pid = fork();
    if (!pid)
        _exit(fork_on_a_small_stack());
    cr_expect_eq(child_of(pid), 7);
    name_of(name, sizeof(name), pid);
    cr_expect_eq(unlink(name), 0);
}

Test(trace, no_memory_for_a_ring, .init = start, .fini = end)
{
    char name[96];

    /* What a full disk is like: to write there would be a SIGBUS. */
    name_of(name, sizeof(name), getpid());
    cr_assert_eq(truncate(name, (off_t)(lapse_trace.header->rings_at +
                                        lapse_trace.ring_bytes / 2)), 0);
    cr_expect_null(trace_reserve(0, TRACE_USER, 64));
    cr_expect_null(trace_reserve(0, TRACE_USER, 64));
    cr_expect_eq(lapse_trace.header->lost, 2);
    cr_expect_eq(trace_ring_head(lapse_trace.header, 0)->off, TRACE_FULL);
}

/* Of how much address space the file takes, where there is a limit. */
static uint64_t ring_under(rlim_t most, const char *more)
{
    struct rlimit old, limit;
    struct stat st;
    char name[96];

    if (ADDRESS_SANITIZER || THREAD_SANITIZER)
        cr_skip("the sanitizer itself takes terabytes");
    cr_assert_eq(getrlimit(RLIMIT_AS, &old), 0);
    limit = (struct rlimit){most, old.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    start_with(NULL, more);
    setrlimit(RLIMIT_AS, &old);
    name_of(name, sizeof(name), getpid());
    if (!observing(OBSERVE_TRACE)) {
        cr_expect_eq(stat(name, &st), -1); /* nothing is left of it */
        return 0;
    }
    cr_expect_eq(stat(name, &st), 0);
    cr_expect_leq((rlim_t)st.st_size, most / 8);
    return lapse_trace.header->ring_bytes >> 10;
}

Test(trace, leaves_address_space_to_the_program, .fini = end)
{
    cr_expect_eq(ring_under((rlim_t)2 << 30, NULL), 128);
}

Test(trace, with_stacks_too, .fini = end)
{
    cr_expect_eq(ring_under((rlim_t)6 << 30, "LAPSE_STACKS=4"), 512);
}

Test(trace, none_where_there_is_little, .fini = end)
{
    cr_expect_eq(ring_under((rlim_t)512 << 20, NULL), 0);
}

Test(trace, none_without_a_directory)
{
    char *environment[] = {(char *)"LAPSE_TRACE=/proc/nowhere", NULL};

    shim_start(environment);
    cr_expect_not(lapse_observing);
    cr_expect_not(lapse_tracing());
    lapse_publish(unit_at(0), UNIT_PAGE);
}
