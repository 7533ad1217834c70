/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What lives on in a forked child: subscriptions kept or dropped, events that
 * waited, callbacks, descriptors, and releases that a thread was in which the
 * child does not have. A storm of forks is case_j1.c.
 */
#include <sys/poll.h> /* not shim/poll.h */
#include <pthread.h>
#include <sched.h>

#include "api.h"

#define BATCH 16

static uint64_t told_seq; /* of the last event that told() was after */

/* One full round; true if an event overlaps. */
static bool told(lapse_handle s, const void *addr, size_t len)
{
    struct lapse_event ev[BATCH];
    bool hit = false;
    int n;

    do {
        n = lapse_poll(s, ev, BATCH);
        for (int i = 0; i < n; i++)
            if (event_overlaps(&ev[i], addr, len)) {
                hit = true;
                told_seq = ev[i].seq;
            }
    } while (n == BATCH);
    return hit;
}

/* Runs one check in a child, whose exit status says which step failed. */
static void in_child(const char *what, int (*step)(void))
{
    pid_t pid;
    int status;

    fflush(stdout);
    pid = fork();
    if (pid == 0)
        _exit(step());
    status = pid < 0 ? -1 : wait_for(pid, 10);
    if (status == -1)
        check(false, "%s: hung", what);
    else
        check(status == 0, "%s: wait status %#x", what, (unsigned)status);
}

static lapse_handle kept, dropped;
static char *watched;
static _Atomic uintptr_t called_addr;

static void on_event(const struct lapse_event *e, void *arg)
{
    (void)arg;
    if (event_overlaps(e, watched, PAGE))
        atomic_store(&called_addr, (uintptr_t)watched);
}

static int child_handles(void)
{
    struct lapse_event ev[BATCH];
    lapse_handle fresh_one;

    if (lapse_poll(dropped, ev, BATCH) != -ESTALE || !lapse_pending(dropped))
        return 1;
    if (lapse_watch(dropped, watched, PAGE) != -ESTALE ||
        lapse_unsubscribe(dropped) != -ESTALE)
        return 2;
    if (lapse_pending(kept) || lapse_poll(kept, ev, BATCH) != 0)
        return 3;
    munmap(watched, PAGE);
    if (!lapse_pending(kept) || !told(kept, watched, PAGE))
        return 4;
    if (lapse_pending(kept))
        return 5;
    fresh_one = subscribe(LAPSE_POLL, LAPSE_ALL, NULL, NULL);
    munmap(watched + PAGE, PAGE);
    if (!told(fresh_one, watched + PAGE, PAGE) ||
        lapse_unsubscribe(fresh_one) != 0 || lapse_unsubscribe(kept) != 0 ||
        lapse_unsubscribe(kept) != -ESTALE)
        return 6;
    return 0;
}

static int child_told_before(void)
{
    return !told(kept, watched + 2 * PAGE, PAGE);
}

static void test_handles(void)
{
    watched = fresh(4 * PAGE);
    kept = subscribe(LAPSE_POLL, LAPSE_FORK_KEEP, NULL, NULL);
    dropped = subscribe(LAPSE_POLL, 0, NULL, NULL);
    need(lapse_watch(kept, watched, 4 * PAGE) == 0, "watch");
    need(lapse_watch(dropped, watched, 4 * PAGE) == 0, "watch");
    in_child("kept and dropped subscriptions", child_handles);
    check(!lapse_pending(kept) && !lapse_pending(dropped),
          "the parent heard nothing of its child's releases");
    munmap(watched + 2 * PAGE, PAGE);
    in_child("an event that waited at the fork", child_told_before);
    check(told(kept, watched + 2 * PAGE, PAGE) &&
              told(dropped, watched + 2 * PAGE, PAGE),
          "the parent still has it");
}

static int child_callback_sync(void)
{
    int err;

    munmap(watched, PAGE);
    err = lapse_sync(kept);
    return err ? -err : atomic_load(&called_addr) != (uintptr_t)watched;
}

/* The thread that calls back is there again after the first call of ours. */
static int child_callback_prompt(void)
{
    if (lapse_watch(kept, watched, PAGE))
        return 2;
    munmap(watched, PAGE);
    for (int i = 0; i < 2000; i++) {
        if (atomic_load(&called_addr) == (uintptr_t)watched)
            return 0;
        sleep_us(1000);
    }
    return 1;
}

static void test_callbacks(void)
{
    lapse_unsubscribe(kept);
    kept = subscribe(LAPSE_CALLBACK, LAPSE_FORK_KEEP, on_event, NULL);
    need(lapse_watch(kept, watched, PAGE) == 0, "watch");
    in_child("a callback in the child, by lapse_sync", child_callback_sync);
    in_child("a callback in the child, by itself", child_callback_prompt);
    check(atomic_load(&called_addr) == 0, "the parent's was not called");
    lapse_unsubscribe(kept);
}

static bool readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
}

static int child_fd(void)
{
    int fd = lapse_fd(kept);

    if (fd < 0 || readable(fd))
        return 1;
    munmap(watched, PAGE);
    if (!readable(fd))
        return 2;
    return !told(kept, watched, PAGE) || readable(fd);
}

static void test_fd(void)
{
    int fd;

    kept = subscribe(LAPSE_POLL, LAPSE_FORK_KEEP, NULL, NULL);
    need(lapse_watch(kept, watched, PAGE) == 0, "watch");
    fd = lapse_fd(kept);
    check(fd >= 0 && !readable(fd), "a descriptor");
    in_child("a descriptor in the child", child_fd);
    check(!readable(fd), "the child's events do not wake the parent");
    munmap(watched, PAGE);
    check(readable(fd) && told(kept, watched, PAGE) && !readable(fd),
          "the parent's own do");
}

/* 0: not begun, 1: open, 2: to be ended */
static atomic_int opened;

static void *hold_open(void *page)
{
    lapse_release release;

    lapse_publish_begin(page, PAGE, &release);
    atomic_store(&opened, 1);
    while (atomic_load(&opened) != 2)
        sched_yield();
    lapse_publish_end(&release);
    return NULL;
}

/* The thread that would close the release is not here: it counts as closed. */
static int child_open(void)
{
    if (!lapse_pending(kept))
        return 1;
    if (!told(kept, watched + 3 * PAGE, PAGE))
        return 2;
    for (int i = 0; i < 2 && lapse_pending(kept); i++)
        told(kept, watched, PAGE);
    if (lapse_pending(kept))
        return 3;
    munmap(watched + 3 * PAGE, PAGE);
    return !told(kept, watched + 3 * PAGE, PAGE) || lapse_pending(kept);
}

static void test_open(bool drained_before)
{
    pthread_t thread;
    uint64_t seq;

    atomic_store(&opened, 0);
    need(lapse_watch(kept, watched + 3 * PAGE, PAGE) == 0, "watch");
    pthread_create(&thread, NULL, hold_open, watched + 3 * PAGE);
    while (!atomic_load(&opened))
        sched_yield();
    if (drained_before)
        check(told(kept, watched + 3 * PAGE, PAGE), "told while open");
    in_child(drained_before ? "an open release that was told before the fork"
                            : "an open release at the fork", child_open);
    check(told(kept, watched + 3 * PAGE, PAGE) && lapse_pending(kept),
          "open in the parent");
    seq = told_seq;
    atomic_store(&opened, 2);
    pthread_join(thread, NULL);
    check(told(kept, watched + 3 * PAGE, PAGE) && told_seq == seq,
          "told once more, closed, by the same number");
    check(!lapse_pending(kept), "and no more");
    lapse_unwatch(kept, watched + 3 * PAGE, PAGE);
}

#ifdef __SANITIZE_THREAD__
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}
#endif

/*
 * Forked while the thread that calls back has been made and may not have run,
 * or is anywhere in its first steps: the child has none, and can make one.
 */
static atomic_int starts;

static void on_start(const struct lapse_event *e, void *arg)
{
    (void)e;
    (void)arg;
    atomic_fetch_add(&starts, 1);
}

static int child_starting(lapse_handle old, bool keeps)
{
    lapse_handle s = old;
    int before;

    if (lapse_drain() || lapse_sync(old) != (keeps ? 0 : -ESTALE))
        return 1;
    if (!keeps)
        s = subscribe(LAPSE_CALLBACK, LAPSE_ALL, on_start, NULL);
    before = starts;
    lapse_publish(watched, PAGE);
    if (keeps && lapse_watch(s, watched, PAGE)) /* revives */
        return 2;
    for (int i = 0; i < 20000 && starts == before; i++)
        sleep_us(50);
    return starts == before ? 3 : lapse_unsubscribe(s) ? 4 : 0;
}

static void test_starting(int forks)
{
    uint64_t seed = 88172645463325252u;
    int status, bad = 0;

    watched = fresh(PAGE);
    for (int i = 0; i < forks && !bad; i++) {
        bool keeps = i % 2;
        uint64_t until = random_next(&seed) % 60000 + now_ns();
        lapse_handle s =
            subscribe(LAPSE_CALLBACK, LAPSE_ALL | (keeps ? LAPSE_FORK_KEEP : 0),
                      on_start, NULL);
        pid_t pid;

        if (i % 4 > 1)
            lapse_publish(watched, PAGE);
        while (now_ns() < until)
            ;
        pid = fork();
        if (pid == 0)
            _exit(child_starting(s, keeps));
        status = pid < 0 ? -1 : wait_for(pid, 10);
        bad = status != 0;
        if (bad)
            check(false, "fork %d, drainer just started: wait status %#x", i,
                  (unsigned)status);
        lapse_unsubscribe(s);
    }
    check(!bad, "%d forks with the drainer just started", forks);
}

int main(void)
{
    alarm(120); /* a hang of the parent is a failure, too */
    test_handles();
    test_callbacks();
    test_fd();
    test_open(false);
    test_open(true);
    fflush(stdout);
    /* AddressSanitizer holds a lock of its own while a thread starts, across
     * fork: a program without this library hangs as well. */
    if (SANITIZED)
        puts("skip: forks with the drainer just started, under a sanitizer");
    else
        test_starting(2000);
    return api_end();
}
