/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What lives on in a forked child: subscriptions kept or dropped, events that
 * waited, callbacks, descriptors, and releases that a thread was in which the
 * child does not have. A storm of forks is case_j1.c.
 * Usage: api_fork | api_fork --drainer FORKS (with the library that is delayed)
 */
#include <sys/poll.h> /* not shim/poll.h */
#include <dirent.h>
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

static _Atomic int forked; /* 1: and the child ended well, 2: it did not */
static _Atomic bool other_called;

static void on_other(const struct lapse_event *e, void *arg)
{
    (void)arg;
    if (event_overlaps(e, watched, PAGE))
        atomic_store(&other_called, true);
}

/* Who subscribes in the child is called back, by a thread of its own. */
static void subscribe_in_child(void)
{
    lapse_handle other = subscribe(LAPSE_CALLBACK, LAPSE_ALL, on_other, NULL);

    munmap(watched, PAGE);
    for (int i = 0; i < 2000 && !atomic_load(&other_called); i++)
        sleep_us(1000);
    _exit(atomic_load(&other_called) && !lapse_unsubscribe(other) ? 0 : 1);
}

static void on_event_fork(const struct lapse_event *e, void *arg)
{
    pid_t pid;

    if (!event_overlaps(e, watched, PAGE) || atomic_load(&forked))
        return;
    fflush(stdout);
    pid = fork();
    if (pid == 0 && arg)
        subscribe_in_child();
    if (pid == 0)
        return; /* nobody else runs there */
    atomic_store(&forked, pid > 0 && wait_for(pid, 10) == 0 ? 1 : 2);
}

/* A child that a callback forks ends when the callback returns there. */
static void test_forking_callback(unsigned flags, void *arg)
{
    char *before = watched;

    watched = fresh(PAGE);
    atomic_store(&forked, 0);
    kept = subscribe(LAPSE_CALLBACK, flags, on_event_fork, arg);
    need(lapse_watch(kept, watched, PAGE) == 0, "watch");
    munmap(watched, PAGE);
    for (int i = 0; i < 15000 && !atomic_load(&forked); i++)
        sleep_us(1000);
    check(atomic_load(&forked) == 1, "a child of a callback, %s, %s: ends well",
          flags ? "kept" : "dropped", arg ? "subscribes" : "returns");
    lapse_unsubscribe(kept);
    watched = before;
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
 * or is anywhere in its first steps, or its last: the child has none, and can
 * make one.
 */
static atomic_int starts;

static void on_start(const struct lapse_event *e, void *arg)
{
    (void)e;
    (void)arg;
    atomic_fetch_add(&starts, 1);
}

static int child_moving(lapse_handle old, bool keeps)
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

enum { STARTING, UP, ENDING, STATES };

static lapse_handle subscribe_moving(bool keeps)
{
    return subscribe(LAPSE_CALLBACK, LAPSE_ALL | (keeps ? LAPSE_FORK_KEEP : 0),
                     on_start, NULL);
}

/* A fork so long after a subscription, or the end of one that was told. */
static int fork_moving(int i, uint64_t after, int (*look)(bool))
{
    bool keeps = i % 2, ends = i % 8 > 3;
    lapse_handle s = subscribe_moving(keeps);
    uint64_t until;
    int status;
    pid_t pid;

    if (i % 4 > 1 || ends)
        lapse_publish(watched, PAGE);
    if (ends) {
        for (int was = starts, k = 0; starts == was && k < 20000; k++)
            sleep_us(50);
        lapse_unsubscribe(s);
    }
    until = now_ns() + after;
    if (ends && i % 16 > 7) /* the next one, while that one goes */
        s = subscribe_moving(keeps);
    while (now_ns() < until)
        ;
    if (look)
        look(ends);
    pid = fork();
    if (pid == 0)
        _exit(child_moving(s, keeps && (!ends || i % 16 > 7)));
    status = pid < 0 ? -1 : wait_for(pid, 10);
    lapse_unsubscribe(s);
    return status;
}

static void test_moving(int forks, uint64_t within, int (*look)(bool))
{
    uint64_t seed = 88172645463325252u;
    int status = 0, i = 0;

    watched = fresh(PAGE);
    for (; i < forks && !status; i++)
        status = fork_moving(i, random_next(&seed) % within, look);
    check(!status, "%d forks while the drainer starts or ends: last wait "
          "status %#x", i, (unsigned)status);
}

/* Which thread is there now: one that has no name yet, or none is wanted. */
static int met[STATES];

static int look(bool ends)
{
    DIR *tasks = opendir("/proc/self/task");
    char path[300], name[32];
    struct dirent *entry;
    int state = -1;

    while (tasks && (entry = readdir(tasks))) {
        FILE *f;

        if (atoi(entry->d_name) == getpid() || entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        f = fopen(path, "r");
        if (!f)
            continue;
        if (fgets(name, sizeof name, f))
            state = strcmp(name, "lapse-drainer\n") ? STARTING
                    : ends                          ? ENDING
                                                    : UP;
        fclose(f);
    }
    if (tasks)
        closedir(tasks);
    if (state >= 0)
        met[state]++;
    return state;
}

static int test_delayed(int forks)
{
    int wanted = forks / 20;
    bool enough = false;

    subscribe(LAPSE_POLL, 0, NULL, NULL); /* the delay wants one */
    /* on a busy machine the thread comes late, when all is over */
    for (int turn = 0; turn < 20 && !enough && !api_failures; turn++) {
        test_moving(forks, 1000000, look);
        enough = met[STARTING] > wanted && met[ENDING] > wanted;
    }
    check(enough, "met it: starting %d times, ending %d, else there %d",
          met[STARTING], met[ENDING], met[UP]);
    return api_end();
}

int main(int argc, char **argv)
{
    int delayed = argc > 2 ? atoi(argv[2]) : 0;

    /* a hang of the parent is a failure, too */
    alarm(120 + (unsigned)delayed / 5);
    if (delayed)
        return test_delayed(delayed);
    test_handles();
    test_callbacks();
    test_forking_callback(0, NULL);
    test_forking_callback(LAPSE_FORK_KEEP, NULL);
    test_forking_callback(0, &watched);
    test_forking_callback(LAPSE_FORK_KEEP, &watched);
    test_fd();
    test_open(false);
    test_open(true);
    fflush(stdout);
    /* AddressSanitizer holds a lock of its own while a thread starts, across
     * fork: a program without this library hangs as well. */
    if (SANITIZED)
        puts("skip: forks with the drainer just started, under a sanitizer");
    else
        test_moving(1000, 60000, NULL);
    return api_end();
}
