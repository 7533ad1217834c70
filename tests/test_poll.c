/* SPDX-License-Identifier: BSD-3-Clause */
#include "shim/lapse.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/poll.h> /* <poll.h> would be shim/poll.h */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

TestSuite(poll, .init = unit_start);

static void publish(size_t page)
{
    cr_assert_eq(lapse_publish(unit_at(page), UNIT_PAGE), 0);
}

static void expect_overflow(const struct lapse_event *e)
{
    cr_assert_eq(e->addr, 0);
    cr_assert_eq(e->len, SIZE_MAX);
    cr_assert_eq(e->reason, LAPSE_REASON_OVERFLOW);
    cr_assert_eq(e->flags, LAPSE_EVENT_OVERFLOW);
}

Test(poll, hands_out_in_order)
{
    lapse_handle h = unit_poller(LAPSE_ALL);
    struct lapse_event e[16];

    for (size_t i = 0; i < 6; i++)
        publish(i);
    cr_assert(lapse_pending(h));
    cr_assert_eq(lapse_poll(h, e, 4), 4);
    cr_assert(lapse_pending(h));
    publish(6); /* behind what is left */
    cr_assert_eq(lapse_poll(h, e + 4, 12), 3);
    for (size_t i = 0; i < 7; i++) {
        cr_expect_eq(e[i].addr, (uintptr_t)unit_at(i));
        cr_expect_eq(e[i].len, UNIT_PAGE);
        cr_expect_eq(e[i].seq, i + 1);
        cr_expect_eq(e[i].reason, LAPSE_REASON_USER);
        cr_expect_eq(e[i].flags, 0);
        cr_expect(!e[i].spare[0] && !e[i].spare[1]);
    }
    cr_assert(!lapse_pending(h));
    cr_assert_eq(lapse_poll(h, e, 16), 0);
}

static void ignore(const struct lapse_event *event, void *arg)
{
    (void)event;
    (void)arg;
}

Test(poll, refuses)
{
    lapse_handle h = unit_poller(LAPSE_ALL);
    lapse_handle other = unit_subscribe(LAPSE_INLINE, 0, ignore, NULL);
    struct lapse_event e;

    publish(0);
    cr_expect_eq(lapse_poll(h, NULL, 1), -EINVAL);
    cr_expect_eq(lapse_poll(h, &e, 0), -EINVAL);
    cr_expect_eq(lapse_poll(other, &e, 1), -EINVAL);
    cr_expect_eq(lapse_fd(other), -EINVAL);
    cr_expect_eq(lapse_sync(h), -EAGAIN);
    cr_expect_eq(lapse_poll(h, &e, SIZE_MAX), 1, "nothing was lost");
    cr_expect_eq(lapse_sync(h), 0);
}

Test(poll, hands_an_open_one_out_again_and_again)
{
    lapse_handle h = unit_poller(LAPSE_ALL);
    struct lapse_event e[8];
    struct unit_opener o;

    publish(1);
    unit_open(&o, unit_at(2), 7); /* a USER release is told exactly */
    publish(3);
    cr_assert_eq(lapse_poll(h, e, 8), 3);
    cr_assert_eq(e[0].flags, 0);
    cr_assert_eq(e[1].flags, LAPSE_EVENT_OPEN);
    cr_assert_eq(e[1].len, 7);
    cr_assert_eq(e[2].flags, 0);
    for (int i = 0; i < 3; i++) {
        cr_assert(lapse_pending(h));
        cr_assert_eq(lapse_poll(h, e, 8), 1, "only the open one is left");
        cr_assert_eq(e[0].seq, 2);
        cr_assert_eq(e[0].flags, LAPSE_EVENT_OPEN);
    }
    publish(4);
    unit_close(&o);
    cr_assert_eq(lapse_poll(h, e, 8), 2);
    cr_assert_eq(e[0].seq, 2, "once more, in its place");
    cr_assert_eq(e[0].flags, 0);
    cr_assert_eq(e[1].addr, (uintptr_t)unit_at(4));
    cr_assert_eq(lapse_poll(h, e, 8), 0);
    cr_assert(!lapse_pending(h));
}

Test(poll, does_not_tell_the_end_of_what_closed_untold)
{
    lapse_handle h = unit_poller(LAPSE_ALL);
    struct lapse_event e[4];
    struct unit_opener o;

    unit_open(&o, unit_at(0), 1);
    unit_close(&o);
    cr_assert_eq(lapse_poll(h, e, 4), 1);
    cr_assert_eq(e[0].flags, 0);
    cr_assert(!lapse_pending(h));
}

/* With a buffer of one a round ends by 0; it must end, with open ones too. */
Test(poll, goes_round_by_one)
{
    lapse_handle h = unit_poller(LAPSE_ALL);
    struct lapse_event e;
    struct unit_opener o[3];
    uint64_t seq;

    for (int i = 0; i < 3; i++)
        unit_open(&o[i], unit_at(i), UNIT_PAGE);
    for (int round = 0; round < 3; round++) {
        for (seq = 1; seq <= 3; seq++) {
            cr_assert_eq(lapse_poll(h, &e, 1), 1);
            cr_assert_eq(e.seq, seq);
        }
        cr_assert_eq(lapse_poll(h, &e, 1), 0, "the round is over");
    }
    cr_assert_eq(lapse_poll(h, &e, 1), 1);
    unit_close(&o[1]); /* while the round stands before it */
    cr_assert_eq(lapse_poll(h, &e, 1), 1);
    cr_assert_eq(e.seq, 2);
    cr_assert_eq(e.flags, 0);
    cr_assert_eq(lapse_poll(h, &e, 1), 1);
    cr_assert_eq(e.seq, 3);
    cr_assert_eq(lapse_poll(h, &e, 1), 0);
    unit_close(&o[2]);
    unit_close(&o[0]);
    for (seq = 1; seq <= 3; seq += 2) {
        cr_assert_eq(lapse_poll(h, &e, 1), 1);
        cr_assert_eq(e.seq, seq);
    }
    cr_assert_eq(lapse_poll(h, &e, 1), 0);
    cr_assert(!lapse_pending(h));
}

static bool readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

Test(poll, fd_is_readable_while_events_wait)
{
    lapse_handle h = unit_poller(LAPSE_ALL);
    struct lapse_event e;
    struct unit_opener o;
    int fd = lapse_fd(h);

    cr_assert_geq(fd, 0);
    cr_assert_eq(lapse_fd(h), fd, "the same every time");
    for (int i = 0; i < 2; i++) {
        cr_assert(!readable(fd));
        publish(0);
        publish(1);
        cr_assert(readable(fd));
        cr_assert_eq(lapse_poll(h, &e, 1), 1);
        cr_assert(readable(fd), "one more waits");
        cr_assert_eq(lapse_poll(h, &e, 1), 1);
        cr_assert_eq(lapse_poll(h, &e, 1), 0);
    }
    unit_open(&o, unit_at(0), 1);
    cr_assert_eq(lapse_poll(h, &e, 1), 1);
    cr_assert_eq(lapse_poll(h, &e, 1), 0);
    cr_assert(readable(fd), "an open one waits");
    unit_close(&o);
    cr_assert_eq(lapse_poll(h, &e, 1), 1);
    cr_assert_eq(lapse_poll(h, &e, 1), 0);
    cr_assert(!readable(fd));
}

Test(poll, fd_made_late_is_readable_at_once)
{
    lapse_handle h = unit_poller(LAPSE_ALL);

    publish(0);
    cr_assert(readable(lapse_fd(h)));
}

Test(poll, fd_is_closed_by_unsubscribe)
{
    lapse_handle h = unit_poller(0);
    int fd = lapse_fd(h);
    struct pollfd p = {.fd = fd};

    lapse_unsubscribe(h);
    cr_assert_eq(poll(&p, 1, 0), 1);
    cr_assert_eq(p.revents, POLLNVAL);
}

/* As a daemon does; then its own file, three bytes in, is where ours was. */
static FILE *take_place(int fd)
{
    FILE *own = tmpfile();

    cr_assert(own && fputs("abcdefgh", own) > 0 && !fflush(own));
    cr_assert_eq(close(fd), 0);
    cr_assert_eq(dup2(fileno(own), fd), fd);
    cr_assert_eq(lseek(fd, 3, SEEK_SET), 3);
    return own;
}

static void is_untouched(FILE *own, int fd, const char *when)
{
    char text[64] = "";

    cr_expect_eq(lseek(fd, 0, SEEK_CUR), 3, "moved: %s", when);
    cr_expect_eq(pread(fileno(own), text, sizeof(text), 0), 8, "%s", when);
    cr_expect_str_eq(text, "abcdefgh", "%s", when);
}

Test(poll, a_file_in_the_place_of_the_fd_is_the_programs)
{
    lapse_handle h = unit_poller(LAPSE_ALL);
    struct lapse_event e;
    int fd = lapse_fd(h), again;
    FILE *own = take_place(fd);

    publish(0);
    is_untouched(own, fd, "a release");
    cr_assert_eq(lapse_poll(h, &e, 1), 1);
    cr_assert_eq(lapse_poll(h, &e, 1), 0);
    is_untouched(own, fd, "poll");
    publish(0);
    again = lapse_fd(h);
    cr_assert(again >= 0 && again != fd, "a new one");
    cr_assert(readable(again), "which is readable at once");
    cr_assert_eq(lapse_fd(h), again);
    is_untouched(own, fd, "a new one");
    own = take_place(again);
    lapse_unsubscribe(h);
    is_untouched(own, again, "unsubscribe");
}

Test(poll, a_child_of_fork_leaves_a_file_in_the_place_of_the_fd)
{
    lapse_handle h = unit_poller(LAPSE_ALL | LAPSE_FORK_KEEP);
    int fd = lapse_fd(h), status;
    FILE *own = take_place(fd);
    pid_t pid = fork();

    if (pid == 0)
        _exit(lseek(fd, 0, SEEK_CUR) != 3);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
    is_untouched(own, fd, "fork");
}

static int close_and_publish(void *fd)
{
    return close(*(int *)fd) || lapse_publish(unit_at(0), UNIT_PAGE);
}

/* It shares our memory and not our descriptors; by clone(), since a sanitizer
 * makes fork() of vfork(). */
Test(poll, a_child_of_vfork_does_not_use_up_the_wakeup)
{
    static _Alignas(16) char stack[1 << 16];
    lapse_handle h = unit_poller(LAPSE_ALL);
    int fd = lapse_fd(h), status;
    pid_t pid = clone(close_and_publish, stack + sizeof(stack),
                      CLONE_VM | CLONE_VFORK | SIGCHLD, &fd);

    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
    cr_assert(lapse_pending(h));
    publish(1);
    cr_assert(readable(fd));
}

Test(poll, overflows_into_one_event)
{
    lapse_handle h = unit_poller(LAPSE_ALL), other = unit_poller(0);
    struct lapse_event e[UNIT_RECORDS + 2];

    lapse_watch(other, unit_at(3), UNIT_PAGE);
    for (size_t i = 0; i < UNIT_RECORDS; i++)
        publish(i);
    cr_assert_eq(lapse_poll(h, e, UNIT_RECORDS + 2), UNIT_RECORDS,
                 "all records are of use");
    for (size_t i = 0; i < UNIT_RECORDS + 1; i++)
        publish(i);
    cr_assert_eq(lapse_poll(h, e, UNIT_RECORDS + 2), 1);
    expect_overflow(&e[0]);
    cr_assert(!lapse_pending(h));
    cr_assert_eq(lapse_poll(h, e, 1), 0);
    cr_assert_eq(lapse_poll(other, e, 8), 2, "others keep theirs");
    cr_assert_eq(e[0].addr, (uintptr_t)unit_at(3));
    publish(9); /* and it goes on */
    cr_assert_eq(lapse_poll(h, e, 8), 1);
    cr_assert_eq(e[0].addr, (uintptr_t)unit_at(9));
}

Test(poll, overflow_keeps_what_is_open)
{
    lapse_handle h = unit_poller(LAPSE_ALL);
    struct lapse_event e[8];
    struct unit_opener o;

    unit_open(&o, unit_at(0), UNIT_PAGE);
    for (size_t i = 0; i < UNIT_RECORDS; i++)
        publish(i);
    cr_assert_eq(lapse_poll(h, e, 8), 2);
    expect_overflow(&e[0]);
    cr_assert_eq(e[1].seq, 1);
    cr_assert_eq(e[1].flags, LAPSE_EVENT_OPEN);
    unit_close(&o);
    cr_assert_eq(lapse_poll(h, e, 8), 1);
    cr_assert_eq(e[0].seq, 1);
    cr_assert_eq(e[0].flags, 0);
    cr_assert(!lapse_pending(h));
}

/* A release that got no record stays told of for as long as it runs. */
Test(poll, overflow_stays_while_its_release_is_open)
{
    lapse_handle h = unit_poller(LAPSE_ALL);
    struct lapse_event e[8];
    struct unit_opener o;

    for (size_t i = 0; i < UNIT_RECORDS; i++)
        publish(i);
    unit_open(&o, unit_at(0), UNIT_PAGE);
    for (int i = 0; i < 3; i++) {
        cr_assert(lapse_pending(h));
        cr_assert_eq(lapse_poll(h, e, 8), 1);
        expect_overflow(&e[0]);
    }
    unit_close(&o);
    cr_assert(lapse_pending(h));
    cr_assert_eq(lapse_poll(h, e, 8), 1, "once more after its end");
    expect_overflow(&e[0]);
    cr_assert(!lapse_pending(h));
}

Test(poll, more_releases_than_slots_is_overflow)
{
    static lapse_release r[1025];
    lapse_handle h = unit_poller(0); /* it watches nothing */
    struct lapse_event e;

    for (int i = 0; i < 1024; i++)
        lapse_publish_begin(unit_at(i), 1, &r[i]);
    cr_assert(!lapse_pending(h));
    lapse_publish_begin(unit_at(1024), 1, &r[1024]);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(lapse_poll(h, &e, 1), 1);
        expect_overflow(&e);
        cr_assert_eq(lapse_poll(h, &e, 1), 0);
        cr_assert(lapse_pending(h));
    }
    lapse_publish_end(&r[1024]);
    cr_assert_eq(lapse_poll(h, &e, 1), 1);
    cr_assert_eq(lapse_poll(h, &e, 1), 0);
    cr_assert(!lapse_pending(h));
    for (int i = 0; i < 1024; i++)
        cr_assert_eq(lapse_publish_end(&r[i]), 0);
    cr_assert(!lapse_pending(h));
}
