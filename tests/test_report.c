/* SPDX-License-Identifier: BSD-3-Clause */
/* The counters in a file that another process can read. */
#include "shim/report.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

static char dir[] = "/tmp/lapse-report-XXXXXX";
static struct report got;

static void start(void)
{
    cr_assert_not_null(mkdtemp(dir));
    unit_start();
    report_start(dir);
}

static void name_of(char *name, size_t size, pid_t pid, int n)
{
    snprintf(name, size, "%s/%d.%d", dir, (int)pid, n);
}

static bool read_report(pid_t pid, int n)
{
    char name[64];
    ssize_t len;
    int fd;

    name_of(name, sizeof(name), pid, n);
    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    len = read(fd, &got, sizeof(got));
    close(fd);
    unlink(name);
    rmdir(dir); /* the last one */
    return len == (ssize_t)sizeof(got);
}

Test(report, is_kept_in_a_file, .init = start)
{
    lapse_handle h = unit_poller(LAPSE_ALL);
    struct lapse_event e[4];

    cr_assert(observing(OBSERVE_REPORT));
    lapse_publish(unit_at(0), 1);
    lapse_poll(h, e, 4);
    report_warn("one");
    report_warn("two");
    report_refresh();
    cr_assert(read_report(getpid(), 0));
    cr_expect_eq(got.magic, REPORT_MAGIC);
    cr_expect_eq(got.pid, getpid());
    cr_expect_eq(got.ppid, getppid());
    cr_expect_eq(got.tallies[0].path[LAPSE_PATH_PUBLISH].releases, 1);
    cr_expect_eq(got.tallies[0].published, 1);
    cr_expect_eq(got.delivered, 1);
    cr_expect_eq(got.pool_high, 1);
    cr_expect_eq(got.in_flight_high, 1);
    cr_expect_eq(got.warnings_len, 8);
    cr_expect(!strncmp(got.warnings, "one\ntwo\n", 8));
}

Test(report, knows_callers_apart, .init = start)
{
    uint64_t count = 0, bytes = 0;

    for (uint64_t pc = 1; pc <= 100; pc++)
        for (uint64_t i = 0; i < 3; i++)
            report_caller(pc << 12, LAPSE_PATH_MUNMAP, pc);
    cr_assert(read_report(getpid(), 0));
    for (int i = 0; i < REPORT_CALLERS; i++) {
        const struct report_caller *c = &got.callers[i];

        cr_assert(!c->pc || c->count == 3);
        cr_assert_eq(c->bytes, 3 * (c->pc >> 12));
        count += c->count;
        bytes += c->bytes;
    }
    cr_expect_eq(count + got.callers_lost, 300);
    cr_expect_eq(got.callers_lost, 0);
    cr_expect_eq(bytes, 3 * 5050);
}

Test(report, keeps_what_an_unloaded_module_did_apart, .init = start)
{
    uint64_t now = 0, gone = 0;

    report_caller(0x5000, LAPSE_PATH_MUNMAP, 7); /* a call that ends there */
    report_caller(0x5001, LAPSE_PATH_MUNMAP, 7);
    report_caller(0x5001, LAPSE_PATH_MUNMAP, 7);
    report_caller(0x6000, LAPSE_PATH_MUNMAP, 7);
    report_caller(0x6001, LAPSE_PATH_MUNMAP, 7);
    report_unloaded(0x5000, 0x6000);
    report_caller(0x5001, LAPSE_PATH_MUNMAP, 7);
    cr_assert(read_report(getpid(), 0));
    for (int i = 0; i < REPORT_CALLERS; i++) {
        const struct report_caller *c = &got.callers[i];

        now += c->count;
        gone += c->gone_count;
        cr_expect_eq(c->bytes, 7 * c->count);
        cr_expect_eq(c->gone_bytes, 7 * c->gone_count);
        cr_expect(!c->gone_count || c->pc == 0x5001 || c->pc == 0x6000);
    }
    cr_expect_eq(now, 3);
    cr_expect_eq(gone, 3);
}

/* Full is said, not hidden. */
Test(report, counts_callers_it_cannot_hold, .init = start)
{
    uint64_t count = 0;

    for (uint64_t pc = 1; pc <= 2 * REPORT_CALLERS; pc++)
        report_caller(pc << 4, LAPSE_PATH_MUNMAP, 1);
    cr_assert(read_report(getpid(), 0));
    for (int i = 0; i < REPORT_CALLERS; i++)
        count += got.callers[i].count;
    cr_expect_geq(got.callers_lost, REPORT_CALLERS);
    cr_expect_eq(count + got.callers_lost, 2 * REPORT_CALLERS);
}

Test(report, warnings_have_an_end, .init = start)
{
    static char line[1000];

    memset(line, 'w', sizeof(line) - 1);
    for (int i = 0; i < 10; i++)
        report_warn(line);
    cr_assert(read_report(getpid(), 0));
    cr_expect_eq(got.warnings_len, 4 * sizeof(line), "whole lines only");
}

Test(report, a_child_has_its_own, .init = start)
{
    pid_t pid;

    lapse_publish(unit_at(0), 1);
    report_warn("inherited");
    pid = fork();
    if (!pid) {
        lapse_publish(unit_at(0), 1);
        lapse_publish(unit_at(0), 1);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    cr_assert(read_report(pid, 0));
    cr_expect_eq(got.ppid, getpid());
    cr_expect_eq(got.tallies[0].path[LAPSE_PATH_PUBLISH].releases, 2);
    cr_expect_eq(got.warnings_len, 10);
    cr_assert(read_report(getpid(), 0));
    cr_expect_eq(got.tallies[0].path[LAPSE_PATH_PUBLISH].releases, 1);
}

/* The same pid again, as after exec: another file, the first one stays. */
Test(report, takes_another_name_when_there_is_one, .init = start)
{
    lapse_publish(unit_at(0), 1);
    report_start(dir);
    cr_assert(read_report(getpid(), 1));
    cr_expect_eq(got.tallies[0].path[LAPSE_PATH_PUBLISH].releases, 0);
    cr_assert(read_report(getpid(), 0));
    cr_expect_eq(got.tallies[0].path[LAPSE_PATH_PUBLISH].releases, 1);
}

Test(report, goes_on_without_a_file)
{
    int old = dup(2), null = open("/dev/null", O_WRONLY);

    dup2(null, 2); /* it warns, see test_log.c */
    report_start("/nonexistent/lapse");
    dup2(old, 2);
    cr_assert(!observing(OBSERVE_REPORT));
    lapse_publish(unit_at(0), 1);
    cr_assert_eq(lapse_report->tallies[0].path[LAPSE_PATH_PUBLISH].releases, 1);
}
