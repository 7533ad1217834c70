/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading traces: made by hand, by a writer at work, cut, damaged. */
#include <criterion/criterion.h>
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
