/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the watchdog is to find, for tests/watchdog.sh: watchdog_client WHAT.
 *   good      callbacks, polls and syncs that come back
 *   callback  waits for a mutex that a thread holds that is in lapse_sync
 *   poll      waits for another one, which stopped amid writing an event
 *   twice     a callback hangs, comes back, and the next one hangs
 *   fork      the same in a child, whose parent had a watchdog, too
 *   last      the process ends with another thread than main, which is gone
 *             while a callback hangs, and nobody waits for our threads
 *   raw       as callback, with a seccomp filter that lets all pass
 * Exit status 7: as it should go. 1: the program noticed something.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lapse.h"

#define PAGE 4096

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static lapse_handle handle;
static char *memory; /* watched, page by page */
static _Atomic int hold_ms, told;
static _Atomic int children_seen;

static void on_child(int signal)
{
    (void)signal;
    atomic_fetch_add(&children_seen, 1);
}

static void wait_ms(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

    while (nanosleep(&t, &t))
        ;
}

static int must(int ok, const char *what)
{
    if (ok)
        return 0;
    fprintf(stderr, "client: %s\n", what);
    _exit(1);
}

/* As if it waited for ever; it ends so that the program can go on. */
static void client_callback(const struct lapse_event *e, void *arg)
{
    (void)arg;
    if (e->flags & LAPSE_EVENT_OPEN)
        return;
    if (atomic_load(&hold_ms) < 0) {
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
    } else {
        wait_ms(atomic_load(&hold_ms));
    }
    atomic_fetch_add(&told, 1);
}

static void subscribe(uint32_t delivery)
{
    struct lapse_subscription how = {.size = sizeof(how),
                                     .delivery = delivery,
                                     .flags = LAPSE_FORK_KEEP};

    if (delivery == LAPSE_CALLBACK)
        how.callback = client_callback;
    memory = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(!lapse_subscribe(&how, &handle), "lapse_subscribe");
    must(!lapse_watch(handle, memory, 16 * PAGE), "lapse_watch");
}

static void release_page(int i)
{
    must(!madvise(memory + i * PAGE, PAGE, MADV_DONTNEED), "madvise");
}

/* While it hangs, we have no child; nor did we ever. */
static void no_child(void)
{
    must(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD,
         "wait() knows of a child");
    must(!atomic_load(&children_seen), "SIGCHLD");
}

static void *sync_with_mutex(void *unused)
{
    pthread_mutex_lock(&mutex);
    release_page(0);
    wait_ms(200); /* the drainer has called back, and waits for us */
    lapse_sync(handle); /* for ever */
    return unused;
}

static void hang_callback(void)
{
    pthread_t thread;

    subscribe(LAPSE_CALLBACK);
    atomic_store(&hold_ms, -1);
    pthread_create(&thread, NULL, sync_with_mutex, NULL);
    for (int i = 0; i < 50; i++) {
        wait_ms(80);
        no_child();
    }
}

static void stay(int signal)
{
    (void)signal;
    for (;;)
        pause();
}

/* The event is written into memory that is not there, and the handler of that
 * fault does not come back. */
static void *poll_stuck(void *unused)
{
    void *hole = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                      0);

    signal(SIGSEGV, stay);
    lapse_poll(handle, hole, 1);
    return unused;
}

static void *poll_behind(void *unused)
{
    struct lapse_event event;

    lapse_poll(handle, &event, 1);
    return unused;
}

static void hang_poll(void)
{
    pthread_t thread;

    subscribe(LAPSE_POLL);
    release_page(0);
    pthread_create(&thread, NULL, poll_stuck, NULL);
    wait_ms(100);
    pthread_create(&thread, NULL, poll_behind, NULL);
    for (int i = 0; i < 50; i++) {
        wait_ms(80);
        no_child();
    }
}

static void hang_twice(void)
{
    subscribe(LAPSE_CALLBACK);
    atomic_store(&hold_ms, 4500); /* of 1 s: one report, not four */
    release_page(0);
    wait_ms(100);
    release_page(1);
    while (atomic_load(&told) < 2) {
        wait_ms(50);
        no_child();
    }
}

static void good(void)
{
    struct lapse_event event;
    lapse_handle polled;
    struct lapse_subscription how = {.size = sizeof(how)};

    subscribe(LAPSE_CALLBACK);
    must(!lapse_subscribe(&how, &polled), "lapse_subscribe");
    atomic_store(&hold_ms, 150); /* many that add up to more */
    for (int i = 0; i < 16; i++) {
        release_page(i);
        lapse_sync(handle);
        lapse_poll(polled, &event, 1);
    }
    must(atomic_load(&told) >= 16, "not told");
    must(!lapse_unsubscribe(handle), "lapse_unsubscribe");
    must(!lapse_unsubscribe(polled), "lapse_unsubscribe");
}

static void in_fork(void)
{
    int status;
    pid_t child;

    subscribe(LAPSE_CALLBACK);
    child = fork();
    if (!child) {
        atomic_store(&hold_ms, 3000);
        release_page(0);
        lapse_watched(memory, PAGE);
        lapse_sync(handle);
        _exit(atomic_load(&told) ? 7 : 1);
    }
    signal(SIGCHLD, on_child);
    must(waitpid(child, &status, 0) == child && status == 7 << 8,
         "the child's status");
}

static void ends_well(void)
{
    no_child();
    _exit(7);
}

static void *hold_mutex(void *unused)
{
    pthread_mutex_lock(&mutex);
    release_page(0);
    wait_ms(3500);
    return unused; /* the last one: exit() is called here */
}

static void end_main(void)
{
    pthread_t thread;

    atexit(ends_well);
    subscribe(LAPSE_CALLBACK);
    atomic_store(&hold_ms, -1);
    pthread_create(&thread, NULL, hold_mutex, NULL);
    pthread_detach(thread);
    pthread_exit(NULL);
}

static void filter(void)
{
    struct sock_filter pass[] = {
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    struct sock_fprog program = {1, pass};

    must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
             !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program),
         "seccomp");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    signal(SIGCHLD, on_child);
    if (!strcmp(what, "raw"))
        filter();
    if (!strcmp(what, "good"))
        good();
    else if (!strcmp(what, "callback") || !strcmp(what, "raw"))
        hang_callback();
    else if (!strcmp(what, "poll"))
        hang_poll();
    else if (!strcmp(what, "twice"))
        hang_twice();
    else if (!strcmp(what, "fork"))
        in_fork();
    else if (!strcmp(what, "last"))
        end_main();
    else
        return 2;
    return 7;
}
