/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every way to make a process, again and again, while two threads are in hooks,
 * one polls, and the drainer calls back: fork, fork of the fork, _Fork, vfork,
 * clone by hand with memory copied and shared, posix_spawn, exec. A child of
 * fork uses the library as if nothing had been; one that was made behind its
 * back may release, and is refused the rest. Every child ends in time.
 * Usage: api_processes [ROUNDS] | api_processes hello (executed by a child)
 */
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/syscall.h>

#include "api.h"

#define LIMIT 60.0 /* seconds that a child may take */
#define EVENTS 16
#define STACK 65536

extern char **environ;
static lapse_handle polled, called;
static atomic_bool stop;
static atomic_ulong callbacks, releases;
static char self[4096];

static void count(const struct lapse_event *event, void *arg)
{
    (void)event;
    (void)arg;
    free(malloc(300000));
    atomic_fetch_add(&callbacks, 1);
}

static bool heard(lapse_handle s, const char *p)
{
    struct lapse_event event[EVENTS];
    bool hit = false;
    int n;

    do {
        n = lapse_poll(s, event, EVENTS);
        for (int i = 0; i < n; i++)
            hit |= event_overlaps(&event[i], p, PAGE);
    } while (n == EVENTS);
    return hit;
}

static bool told_of_release(lapse_handle s)
{
    char *p = fresh(PAGE);
    bool good = !lapse_watch(s, p, PAGE) && !munmap(p, PAGE) && heard(s, p);

    return !lapse_unwatch(s, p, PAGE) && good;
}

static void *releaser(void *unused)
{
    while (!atomic_load(&stop)) {
        char *p = fresh(4 * PAGE);

        free(malloc(400000));
        madvise(p, PAGE, MADV_DONTNEED);
        munmap(p, 4 * PAGE);
        atomic_fetch_add(&releases, 1);
    }
    return unused;
}

static void *poller(void *unused)
{
    struct lapse_event event[EVENTS];
    lapse_handle s;

    while (!atomic_load(&stop)) {
        lapse_poll(polled, event, EVENTS);
        s = subscribe(LAPSE_POLL, 0, NULL, NULL);
        told_of_release(s);
        lapse_unsubscribe(s);
    }
    return unused;
}

/* Everything; returns the step that failed. */
static int use_all(void)
{
    unsigned long before = atomic_load(&callbacks);
    lapse_handle s;

    if (!told_of_release(polled))
        return 2;
    s = subscribe(LAPSE_POLL, 0, NULL, NULL);
    if (!told_of_release(s) || lapse_unsubscribe(s))
        return 3;
    munmap(fresh(PAGE), PAGE);
    if (lapse_sync(called) || atomic_load(&callbacks) == before)
        return 4;
    free(malloc(1 << 20));
    return 0;
}

static int child_forks(void)
{
    int step = use_all();
    pid_t pid;

    if (step)
        return step;
    pid = fork();
    if (pid == 0) {
        step = use_all();
        pid = step ? -1 : fork(); /* and once more, left alone */
        if (pid == 0)
            _exit(0);
        _exit(step ? 10 + step : wait_for(pid, LIMIT) ? 9 : 0);
    }
    return pid < 0 || wait_for(pid, LIMIT) ? 5 : 0;
}

/* As POSIX has it in such a child: async-signal-safe functions alone. */
static int child_safe(void)
{
    char *p = fresh(2 * PAGE);

    if (madvise(p, PAGE, MADV_DONTNEED) || p[0] || munmap(p, 2 * PAGE))
        return 6;
    return 0;
}

static int child_raw(void)
{
    struct lapse_subscription how = {.size = sizeof how};
    struct lapse_event event;
    lapse_handle s;
    int step = child_safe();

    if (step)
        return step;
    if (lapse_poll(polled, &event, 1) != -ECHILD ||
        lapse_watch(polled, self, 1) != -ECHILD ||
        lapse_subscribe(&how, &s) != -ECHILD || lapse_drain() != -ECHILD)
        return 7;
    return 0;
}

static int child_exec(void)
{
    execl(self, "api_processes", "hello", (char *)NULL);
    return 8;
}

static int (*const in_child[])(void) = {use_all, child_forks, child_safe,
                                        child_exec};

static pid_t spawn(void)
{
    char *argv[] = {self, (char *)"hello", NULL};
    pid_t pid;

    return posix_spawn(&pid, self, NULL, NULL, argv, environ) ? -1 : pid;
}

/* A frame of its own: see vfork(2). */
static __attribute__((noinline)) pid_t vforked(void)
{
    pid_t pid = vfork();

    if (pid == 0) {
        execl(self, "api_processes", "hello", (char *)NULL);
        _exit(8);
    }
    return pid;
}

static char *shared; /* a page that a child with our memory releases */

static int in_shared(void *unused)
{
    (void)unused;
    _exit(munmap(shared, PAGE) ? 1 : 0);
}

static bool try_shared(void)
{
    char *stack = fresh(STACK);
    bool good;
    pid_t pid;

    shared = fresh(PAGE);
    lapse_watch(polled, shared, PAGE);
    pid = clone(in_shared, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD,
                NULL);
    /* The poller may have got it, that is as good. */
    good = pid > 0 && wait_for(pid, LIMIT) == 0;
    lapse_unwatch(polled, shared, PAGE);
    munmap(stack, STACK);
    return good;
}

static pid_t make(int how)
{
    pid_t pid;

    switch (how) {
    case 0 ... 3:
        pid = fork();
        if (pid == 0)
            _exit(in_child[how]());
        return pid;
    case 4:
        pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
        if (pid == 0)
            _exit(child_raw());
        return pid;
    case 5:
        pid = _Fork();
        if (pid == 0)
            _exit(child_raw());
        return pid;
    case 6:
        return vforked();
    default:
        return spawn();
    }
}

static const char *const name[] = {
    "fork, the child uses everything", "fork of a fork of a fork",
    "fork, async-signal-safe calls alone", "fork and exec",
    "clone by hand: releases, the rest is refused",
    "_Fork: releases, the rest is refused", "vfork and exec", "posix_spawn"};
#define WAYS 8

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    pthread_t thread[3];
    int shared_good = 0;

    polled = subscribe(LAPSE_POLL, LAPSE_FORK_KEEP, NULL, NULL);
    if (argc > 1 && !strcmp(argv[1], "hello"))
        return told_of_release(polled) ? 0 : 1;
    need(readlink("/proc/self/exe", self, sizeof self - 1) > 0, "/proc");
    called = subscribe(LAPSE_CALLBACK, LAPSE_FORK_KEEP | LAPSE_ALL, count,
                       NULL);
    pthread_create(&thread[0], NULL, releaser, NULL);
    pthread_create(&thread[1], NULL, releaser, NULL);
    pthread_create(&thread[2], NULL, poller, NULL);
    for (int how = 0; how < WAYS; how++) {
        int good = 0, status = 0;

        for (int i = 0; i < rounds; i++) {
            pid_t pid = make(how);
            int is = pid < 0 ? -1 : wait_for(pid, LIMIT);

            good += is == 0;
            status = is ? is : status;
        }
        check(good == rounds, "%s: %d of %d (wait status %#x)", name[how],
              good, rounds, (unsigned)status);
    }
    for (int i = 0; i < rounds; i++)
        shared_good += try_shared();
    check(shared_good == rounds, "clone with memory shared: %d of %d",
          shared_good, rounds);
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    check(told_of_release(polled), "the parent is told as ever");
    printf("%lu releases, %lu callbacks meanwhile\n", atomic_load(&releases),
           atomic_load(&callbacks));
    return api_end();
}
