/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading traces: made by hand, by a writer at work, cut, damaged. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "scripts/trace.h"
#include "trace_maker.h"

static char path[] = "/tmp/lapse-trace.XXXXXX";
static struct maker m;

static void make(unsigned rings)
{
    int fd = mkstemp(path);

    cr_assert_geq(fd, 0);
    close(fd);
    m = maker_open(path, rings);
}

static void unmake(void)
{
    maker_close(&m);
    unlink(path);
}

static struct trace *reader(void)
{
    const char *why = NULL;
    struct trace *t = trace_open(path, &why);

    cr_assert(t, "%s", why);
    return t;
}

static void refused(const char *words)
{
    const char *why = NULL;

    cr_assert_null(trace_open(path, &why));
    cr_assert(strstr(why, words), "%s", why);
}

Test(trace_read, merges_rings_by_time)
{
    struct trace *t;
    const struct trace_record *r;
    uint64_t before = 0, n = 0;
    unsigned ring;

    make(3);
    for (uint64_t i = 0; i < 300; i++)
        maker_release(&m, (unsigned)(i * i % 3), 2000 + i, i * 4096,
                      (i + 1) * 4096);
    t = reader();
    while ((r = trace_next(t, &ring))) {
        cr_assert_eq(r->kind, TRACE_RELEASE);
        cr_assert_gt(r->ticks, before);
        before = r->ticks;
        cr_assert_eq(ring, n * n % 3);
        cr_assert_eq(((const struct trace_release *)r)->start, 4096 * n++);
    }
    cr_assert_eq(n, 300);
    cr_assert_eq(trace_read(t), 300);
    cr_assert_eq(trace_overwritten(t), 0);
    cr_assert_eq(trace_damaged(t), 0);
    /* what comes later is read later */
    maker_release(&m, 1, 3000, 0, 4096);
    cr_assert(trace_next(t, NULL));
    cr_assert_null(trace_next(t, NULL));
    trace_close(t);
    unmake();
}

Test(trace_read, counts_what_was_overwritten)
{
    struct trace *t;
    const struct trace_record *r;
    uint64_t n = 0, last = 0;

    make(1);
    for (uint64_t i = 0; i < 10000; i++)
        maker_user(&m, 0, 2000 + i, (uint32_t)(i % 97));
    t = reader();
    while ((r = trace_next(t, NULL))) {
        cr_assert(maker_check_user(r), "record %lu", r->number);
        cr_assert(!n || r->number == last + 1);
        last = r->number;
        n++;
    }
    cr_assert_eq(last, 9999);
    cr_assert_eq(trace_read(t) + trace_overwritten(t), 10000);
    /* all but the oldest block are there */
    cr_assert_gt(n, 7 * MAKER_BLOCK / (sizeof(struct trace_user) + 104));
    cr_assert_eq(trace_damaged(t), 0);
    trace_close(t);
    unmake();
}

Test(trace_read, refuses_what_is_no_trace)
{
    make(2);
    m.header->version = 2;
    refused("another version");
    m.header->version = 1;
    m.header->rings_at = 1u << 30;
    refused("damaged");
    m.header->magic = 0;
    refused("never begun");
    m.header->magic = 77;
    refused("not a trace");
    cr_assert_eq(truncate(path, 100), 0);
    refused("not a trace");
    unmake();
}

/* All that can be read; what is read must be whole. */
static uint64_t drain(struct trace *t)
{
    const struct trace_record *r;
    uint64_t n = 0;

    for (; (r = trace_next(t, NULL)); n++)
        cr_assert(r->kind != TRACE_USER || maker_check_user(r), "%lu",
                  r->number);
    return n;
}

Test(trace_read, leaves_what_a_killed_writer_left_half_written)
{
    uint8_t half[256];
    struct trace *t;

    memset(half, 0xee, sizeof(half));
    make(1);
    /* the ring is full, so it lies over the oldest records, too */
    for (uint64_t i = 0; i < 2000; i++)
        maker_user(&m, 0, 2000 + i, 16);
    while (m.heads[0].end % MAKER_BLOCK < 512)
        maker_user(&m, 0, 5000, 16);
    maker_begin(&m, 0, half, sizeof(half));
    t = reader();
    cr_assert_gt(drain(t), 300);
    cr_assert_eq(trace_read(t) + trace_overwritten(t), m.heads[0].next);
    cr_assert_eq(trace_damaged(t), 0);
    trace_close(t);
    unmake();
}

Test(trace_read, passes_over_damage)
{
    static const uint32_t sizes[] = {0, 8, 31, 33, 4096, 4104, UINT32_MAX};
    struct trace *t;

    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        make(2);
        for (uint64_t n = 0; n < 200; n++)
            maker_user(&m, n % 2, 2000 + n, 24);
        /* a record in the middle of the first block */
        ((struct trace_record *)maker_at(
             &m, 0, sizeof(struct trace_clock_record) + 64))->bytes = sizes[i];
        t = reader();
        cr_assert_geq(drain(t), 101, "size %u", sizes[i]);
        cr_assert_geq(trace_damaged(t), 1, "size %u", sizes[i]);
        cr_assert_eq(trace_read(t) + trace_overwritten(t), 200);
        trace_close(t);
        unmake();
        strcpy(strrchr(path, '.'), ".XXXXXX");
    }
}

Test(trace_read, refuses_lengths_that_lie)
{
    struct trace_user user = {.head = {.bytes = 64, .kind = TRACE_USER},
                              .len = 25}; /* 24 are there */
    struct {
        struct trace_release release;
        struct trace_stack stack;
    } stack = {.release.head = {.bytes = sizeof(stack),
                                .kind = TRACE_RELEASE,
                                .flags = TRACE_HAS_STACK},
               .stack.bytes = 1};
    uint64_t room[8] = {0};
    struct trace *t;

    make(1);
    memcpy(room, &user, sizeof(user));
    maker_record(&m, 0, (void *)room);
    maker_record(&m, 0, &stack.release.head);
    maker_release(&m, 0, 3000, 0, 4096);
    t = reader();
    cr_assert_eq(drain(t), 1);
    cr_assert_eq(trace_damaged(t), 2);
    trace_close(t);
    unmake();
}

Test(trace_read, a_file_that_is_cut_is_read_as_far_as_it_goes)
{
    struct trace *t;
    uint64_t all;

    make(2);
    for (uint64_t i = 0; i < 500; i++)
        maker_user(&m, i % 2, 2000 + i, 16);
    t = reader();
    cr_assert_eq(drain(t), 500);
    trace_close(t);
    /* before it is opened: the second ring is gone */
    cr_assert_eq(truncate(path, (off_t)(m.header->rings_at + MAKER_RING)), 0);
    t = reader();
    cr_assert_eq(drain(t), 250);
    cr_assert_gt(trace_damaged(t), 0);
    trace_close(t);
    /* and after: of the first ring, all but two pages; then all of it */
    t = reader();
    cr_assert_eq(truncate(path, (off_t)(m.header->rings_at + 8192)), 0);
    all = drain(t);
    cr_assert(all > 50 && all < 250, "%lu", all);
    cr_assert_eq(truncate(path, 0), 0);
    trace_refresh(t);
    cr_assert_null(trace_next(t, NULL));
    cr_assert_null(trace_segment(t, 0x401000, 2000));
    cr_assert_null(trace_type(t, 3));
    trace_close(t);
    unlink(path);
}

/* Touches a page of a file that is not there any more. */
static void touch_cut_file(void)
{
    char other[] = "/tmp/lapse-trace-other.XXXXXX";
    int fd = mkstemp(other);
    volatile char *page;

    unlink(other);
    if (ftruncate(fd, 4096))
        _exit(2);
    page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (ftruncate(fd, 0))
        _exit(2);
    _exit(page[0]);
}

Test(trace_read, a_sigbus_of_somebody_else_is_his)
{
    int status;
    pid_t pid;

    make(1);
    pid = fork();
    if (!pid) {
        signal(SIGBUS, SIG_DFL); /* not a sanitizer's */
        reader();
        touch_cut_file();
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFSIGNALED(status));
    cr_assert_eq(WTERMSIG(status), SIGBUS);
    unmake();
}

Test(trace_read, does_not_read_a_ring_in_which_a_fork_happened)
{
    struct trace *t;

    make(2);
    maker_user(&m, 0, 2000, 8);
    maker_user(&m, 1, 2000, 8);
    m.heads[0].off = TRACE_FORKED;
    m.heads[1].off = TRACE_FULL;
    t = reader();
    cr_assert_eq(drain(t), 1);
    trace_close(t);
    unmake();
}

Test(trace_read, times_follow_from_the_clocks)
{
    struct trace *t;

    make(1);
    /* start: 1000 ticks are 500 ns; the clock in the block: 5000 are 2500 */
    maker_user(&m, 0, 5000, 8);
    t = reader();
    cr_assert_eq(trace_ns(t, 1000), 0);
    cr_assert_eq(trace_ns(t, 3000), 1000);
    cr_assert_eq(trace_ns(t, 5000), 2000);
    cr_assert_eq(trace_ns(t, 9000), 4000, "after the last clock");
    cr_assert_eq(trace_ns(t, 0), 0, "never before the start");
    cr_assert_eq(trace_realtime(t, 3000), 1001000);
    trace_close(t);
    unmake();
}

static struct trace_segment *put_segment(uint64_t start, uint64_t end,
                                         uint64_t loaded, uint64_t unloaded,
                                         const char *name)
{
    struct trace_segment *s = (void *)(m.file + m.header->segments_at +
                                       m.header->segments_len);

    *s = (struct trace_segment){
        .bytes = (uint32_t)(sizeof(*s) + strlen(name) + 8) & ~7u,
        .bias = start,
        .start = start,
        .end = end,
        .loaded = loaded,
        .unloaded = unloaded};
    memcpy(s->name, name, strlen(name) + 1);
    m.header->segments_len += s->bytes;
    m.header->epoch++;
    return s;
}

static const char *module_at(struct trace *t, uint64_t address, uint64_t ticks)
{
    const struct trace_segment *s = trace_segment(t, address, ticks);

    return s ? s->name : "none";
}

Test(trace_read, an_address_is_of_the_module_that_was_there_then)
{
    struct trace *t;
    struct trace_segment *first;

    make(1);
    first = put_segment(0x1000, 0x3000, 0, 0, "/first");
    put_segment(0x5000, 0x6000, 100, 200, "/second");
    t = reader();
    cr_assert_str_eq(module_at(t, 0x1000, 1), "/first");
    cr_assert_str_eq(module_at(t, 0x2fff, 9000), "/first");
    cr_assert_str_eq(module_at(t, 0x3000, 1), "none");
    cr_assert_str_eq(module_at(t, 0x5800, 99), "none");
    cr_assert_str_eq(module_at(t, 0x5800, 100), "/second");
    cr_assert_str_eq(module_at(t, 0x5800, 200), "none");
    /* while it is read: one goes, another comes at its place */
    first->unloaded = 300;
    put_segment(0x2000, 0x4000, 350, 0, "/third");
    cr_assert_str_eq(module_at(t, 0x2800, 299), "/first");
    cr_assert_str_eq(module_at(t, 0x2800, 320), "none");
    cr_assert_str_eq(module_at(t, 0x2800, 350), "/third");
    /* an entry that makes no sense ends what can be known */
    put_segment(0x8000, 0x7000, 0, 0, "/backwards");
    put_segment(0x9000, 0xa000, 0, 0, "/behind");
    cr_assert_str_eq(module_at(t, 0x9000, 1), "none");
    cr_assert_str_eq(module_at(t, 0x1000, 1), "/first");
    cr_assert_eq(trace_damaged(t), 1);
    trace_close(t);
    unmake();
}

Test(trace_read, a_type_is_there_when_it_is_ready)
{
    struct trace_type *type;
    struct trace *t;

    make(1);
    type = (void *)(m.file + m.header->types_at);
    t = reader();
    memset(type[5].name, 'x', sizeof(type[5].name)); /* no 0 at its end */
    cr_assert_null(trace_type(t, 5));
    type[5].ready = 1;
    cr_assert_eq(strlen(trace_type(t, 5)->name), sizeof(type[5].name) - 1);
    cr_assert_null(trace_type(t, TRACE_TYPES));
    cr_assert_null(trace_type(t, UINT32_MAX));
    trace_close(t);
    unmake();
}

/* All that a trace can be asked. */
static void use(struct trace *t)
{
    const struct trace_record *r;
    const struct trace_stack *stack;
    const uint8_t *memory;
    uint64_t sum = 0, n = 0;
    unsigned ring;

    while ((r = trace_next(t, &ring))) {
        cr_assert_lt(++n, 100000, "there is no end");
        for (uint32_t i = 0; i < r->bytes; i += 8)
            sum += ((const uint8_t *)r)[i];
        stack = trace_stack_of(r, &memory);
        for (uint64_t i = 0; stack && i < stack->bytes; i += 8)
            sum += memory[i];
        sum += trace_ns(t, r->ticks) + trace_realtime(t, r->ticks);
        if (r->kind == TRACE_RELEASE)
            trace_segment(t, ((const struct trace_release *)r)->pc, r->ticks);
        if (r->kind == TRACE_USER)
            trace_type(t, ((const struct trace_user *)r)->type);
    }
    __asm__ volatile("" : : "r"(sum));
}

static void make_for_fuzz(void)
{
    struct {
        struct trace_release release;
        struct trace_stack stack;
        uint64_t memory[32];
    } stack = {.release.head = {.bytes = sizeof(stack),
                                .kind = TRACE_RELEASE,
                                .flags = TRACE_HAS_STACK},
               .stack.bytes = sizeof(stack.memory)};

    make(4);
    for (unsigned i = 0; i < 20; i++)
        put_segment(i * 0x1000, (i + 1) * 0x1000, i, 0, "/some/module.so");
    for (uint64_t i = 0; i < 250; i++) {
        maker_release(&m, i % 3, 2000 + i, i, i + 1);
        maker_user(&m, i % 3, 2000 + i, (uint32_t)(i % 50));
        stack.release.head.ticks = 2001 + i;
        if (i % 8 == 0)
            maker_record(&m, 3, &stack.release.head);
    }
}

/* Header, heads, segments, or anything: a byte somewhere is another one. */
static uint64_t somewhere(void)
{
    switch (random() % 4) {
    case 0:
        return (uint64_t)random() % sizeof(*m.header);
    case 1:
        return m.header->heads_at +
               (uint64_t)random() % (4 * sizeof(*m.heads));
    case 2:
        return m.header->segments_at + (uint64_t)random() % 2000;
    default:
        return m.header->rings_at + (uint64_t)random() % (4 * MAKER_RING);
    }
}

Test(trace_read, bytes_at_random_do_no_harm, .timeout = 100)
{
    enum { TIMES = 10000, MOST = 8 };
    uint64_t at[MOST];
    uint8_t was[MOST];
    unsigned opened = 0;
    const char *why;

    make_for_fuzz();
    srandom(4711);
    for (unsigned i = 0; i < TIMES; i++) {
        unsigned n = 1 + (unsigned)random() % MOST;
        struct trace *t;

        for (unsigned k = 0; k < n; k++)
            at[k] = somewhere();
        for (unsigned k = 0; k < n; k++) {
            was[k] = m.file[at[k]];
            m.file[at[k]] = (uint8_t)random();
        }
        t = trace_open(path, &why);
        if (t) {
            use(t);
            opened++;
        }
        trace_close(t);
        for (unsigned k = n; k-- > 0;)
            m.file[at[k]] = was[k];
    }
    cr_assert_gt(opened, TIMES / 3);
    unmake();
}

Test(trace_read, a_ring_that_says_it_ends_far_away_has_an_end, .timeout = 20)
{
    struct trace *t;

    make(1);
    for (uint64_t i = 0; i < 100; i++)
        maker_user(&m, 0, 2000 + i, 8);
    m.heads[0].end = (uint64_t)1 << 50;
    t = reader();
    drain(t);
    cr_assert_gt(trace_damaged(t), 0);
    trace_close(t);
    unmake();
}
