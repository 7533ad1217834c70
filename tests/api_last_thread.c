/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes that end with the last thread of the program's while threads of
 * the library are being made, live, and end: exit(0) is called, once, and not
 * before. What it looks like to a program that knows of nothing is
 * victims/last_thread.c.
 * Usage: api_last_thread [ROUNDS]
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>

#include "backstop.h"

#define LIMIT 10.0

static struct seen {
    atomic_int begun, exits, told, step; /* exits: that got to the end */
} *seen;
static lapse_handle handle;

static void at_exit(void)
{
    atomic_fetch_add(&seen->begun, 1);
    sleep_us(2000);
    atomic_fetch_add(&seen->exits, 1);
}

static void count(const struct lapse_event *event, void *arg)
{
    (void)event;
    (void)arg;
    atomic_fetch_add(&seen->told, 1);
}

static lapse_handle caller(lapse_callback callback)
{
    return subscribe(LAPSE_CALLBACK, LAPSE_ALL | LAPSE_FORK_KEEP, callback,
                     NULL);
}

static bool await(atomic_int *what, int least)
{
    for (int i = 0; i < 5000 && atomic_load(what) < least; i++)
        sleep_us(1000);
    return atomic_load(what) >= least;
}

/* In a process of its own, which `way` leaves by pthread_exit() or return. */
static bool ends(void *(*way)(void *), int exits, int code)
{
    pid_t pid;
    int status;

    memset(seen, 0, sizeof *seen);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        atexit(at_exit);
        way(NULL);
        pthread_exit(NULL);
    }
    status = wait_for(pid, LIMIT);
    if (status == code << 8 && seen->exits == exits && seen->begun == exits)
        return true;
    printf("wait status %#x, %d of %d exits, %d of these to the end\n",
           (unsigned)status, seen->begun, exits, seen->exits);
    return false;
}

static void try(const char *what, void *(*way)(void *), int rounds, int exits,
                int code)
{
    int good = 0;

    while (good < rounds && ends(way, exits, code))
        good++;
    check(good == rounds, "%s: %d of %d", what, good, rounds);
}

static void *made(void *unused)
{
    handle = caller(count);
    return unused;
}

static void *made_and_ended(void *unused)
{
    made(unused);
    lapse_unsubscribe(handle);
    return unused;
}

static void *working(void *unused)
{
    made(unused);
    for (int i = 0; i < 20; i++)
        munmap(fresh(PAGE), PAGE);
    return unused;
}

/* Main is gone; the library goes on. */
static void *after_main(void *unused)
{
    char *p;

    sleep_us(20000);
    p = fresh(4 * PAGE);
    for (int i = 0; i < 4; i++) {
        int before = atomic_load(&seen->told);

        lapse_watch(handle, p + i * PAGE, PAGE);
        munmap(p + i * PAGE, PAGE);
        if (!await(&seen->told, before + 1))
            _exit(2);
    }
    return unused;
}

static void *told_after_main(void *unused)
{
    pthread_t thread;

    made(unused);
    pthread_create(&thread, NULL, after_main, NULL);
    return unused;
}

/* The forked one makes its own thread at the first call. */
static void *in_fork(void *unused)
{
    pid_t pid = fork();

    if (pid == 0) {
        if (lapse_watch(handle, seen, PAGE))
            _exit(3);
        return unused;
    }
    if (wait_for(pid, LIMIT))
        _exit(4);
    return unused;
}

/* A range that the kernel does not take as a whole: the library looks where the
 * mappings are. */
static void *tells_after_main(void *file)
{
    struct lapse_event event;
    int fd = (int)(intptr_t)file;
    char *p;

    sleep_us(20000);
    p = fresh(3 * PAGE);
    if (fd < 0 || mmap(p, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) != p)
        _exit(12);
    if (lapse_watch(sub, p, 3 * PAGE))
        _exit(12);
    while (lapse_poll(sub, &event, 1) > 0)
        ;
    sys(SYS_munmap, p + 2 * PAGE, PAGE);
    if (lapse_poll(sub, &event, 1) != 1 ||
        !event_overlaps(&event, p + 2 * PAGE, PAGE))
        _exit(13);
    return NULL;
}

static void *kernel_tells(void *unused)
{
    pthread_t thread;

    sub = subscribe(LAPSE_POLL, 0, NULL, NULL);
    pthread_create(&thread, NULL, tells_after_main,
                   (void *)(intptr_t)open("/proc/self/exe", O_RDONLY));
    return unused;
}

static void *forked(void *unused)
{
    made(unused);
    return in_fork(unused);
}

static void *forked_by_thread(void *unused)
{
    pthread_t thread;

    made(unused);
    pthread_create(&thread, NULL, in_fork, NULL);
    return unused;
}

static void *nothing(void *unused)
{
    return unused;
}

static const struct lapse_thread short_one = {.start = nothing};

/* Threads of ours come and go while exit() runs on the last thread. */
static void use_at_exit(void)
{
    lapse_handle s = caller(count);
    pthread_t thread;

    munmap(fresh(PAGE), PAGE);
    lapse_sync(s);
    lapse_unsubscribe(s);
    if (lapse_thread_start(&short_one, &thread) ||
        pthread_join(thread, NULL) || lapse_thread_start(&short_one, NULL))
        _exit(5);
    sleep_us(20000);
    atomic_fetch_add(&seen->step, 1);
}

static void *used_at_exit(void *unused)
{
    atexit(use_at_exit);
    return unused;
}

static void *ended_at_exit(void *unused)
{
    made(unused);
    return used_at_exit(unused);
}

/* A thread of ours makes others when the program's last one may end. */
static void *make_more(void *unused)
{
    pthread_t thread;

    atomic_fetch_add(&seen->step, 1);
    while (!lapse_thread_start(&short_one, &thread))
        pthread_join(thread, NULL);
    return unused;
}

static void made_by(int makers)
{
    static const struct lapse_thread maker = {.start = make_more};
    static uint64_t seed = 88172645463325252u;

    random_next(&seed);
    seed ^= (uint64_t)getpid() << 20;
    for (int i = 0; i < makers; i++)
        if (lapse_thread_start(&maker, NULL))
            _exit(6);
    await(&seen->step, makers);
    for (unsigned i = random_next(&seed) % 20000; i; i--)
        __asm__ volatile("");
}

static void *made_by_ours(void *unused)
{
    made_by(2);
    return unused;
}

/* On a busy machine who is made runs first, and has often ended when he who made
 * it goes on. */
static atomic_bool maker_is_last;

__attribute__((visibility("default"))) int
pthread_create(pthread_t *thread, const pthread_attr_t *attr,
               void *(*start)(void *), void *arg)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
                       void *);
    int err;

    if (!real)
        real = (typeof(real))dlsym(RTLD_NEXT, "pthread_create");
    err = real(thread, attr, start, arg);
    if (maker_is_last)
        sleep_us(500);
    return err;
}

static void *made_slowly(void *unused)
{
    maker_is_last = true;
    made_by(1);
    return unused;
}

static void end_thread(const struct lapse_event *event, void *arg)
{
    (void)event;
    (void)arg;
    atomic_fetch_add(&seen->told, 1);
    pthread_exit(NULL);
}

static void *callback_ends_thread(void *unused)
{
    handle = caller(end_thread);
    munmap(fresh(PAGE), PAGE);
    if (!await(&seen->told, 1))
        _exit(7);
    sleep_us(20000);
    exit(3);
    return unused;
}

static void *outlive(void *unused)
{
    sleep_us(20000);
    if (seen->begun) /* exit() while one of its threads works */
        _exit(8);
    return unused;
}

static void make_thread(const struct lapse_event *event, void *arg)
{
    pthread_t thread;

    (void)event;
    (void)arg;
    if (atomic_fetch_add(&seen->told, 1))
        return;
    if (pthread_create(&thread, NULL, outlive, NULL))
        _exit(9);
    pthread_detach(thread);
    atomic_fetch_add(&seen->step, 1);
}

static void *callback_makes_thread(void *unused)
{
    handle = caller(make_thread);
    munmap(fresh(PAGE), PAGE);
    if (!await(&seen->step, 1))
        _exit(10);
    return unused;
}

/* In the child that thread is the only one, and libc's first. */
static void fork_thread(const struct lapse_event *event, void *arg)
{
    pid_t pid;

    (void)event;
    (void)arg;
    if (atomic_fetch_add(&seen->told, 1))
        return;
    pid = fork();
    if (pid == 0)
        lapse_unsubscribe(handle);
    else
        atomic_store(&seen->step, wait_for(pid, LIMIT) ? 2 : 1);
}

static void *callback_forks(void *unused)
{
    handle = caller(fork_thread);
    munmap(fresh(PAGE), PAGE);
    if (!await(&seen->step, 1) || seen->step != 1)
        _exit(11);
    return unused;
}

static void *write_one(void *file)
{
    putc('x', file);
    atomic_store(&seen->step, 1);
    return NULL;
}

/* libc's putc() and the like lock from when the first thread is made. */
static void *stdio_locks(void *unused)
{
    static struct lapse_thread thread = {.start = write_one};
    pthread_t made;

    thread.arg = tmpfile();
    need(thread.arg, "tmpfile");
    flockfile(thread.arg);
    if (lapse_thread_start(&thread, &made))
        _exit(14);
    sleep_us(100000);
    if (seen->step)
        _exit(15);
    funlockfile(thread.arg);
    pthread_join(made, NULL);
    return unused;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 30;

    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(seen != MAP_FAILED, "mmap");
    try("main leaves, a callback is just there", made, rounds, 1, 0);
    try("main leaves, a callback just ended", made_and_ended, rounds, 1, 0);
    try("main leaves, callbacks run", working, rounds, 1, 0);
    try("main has left, callbacks go on", told_after_main, 3, 1, 0);
    if (covered())
        try("main has left, the kernel tells on", kernel_tells, 3, 1, 0);
    /* As in api_fork: its lock, and a thread that starts meanwhile. */
    if (SANITIZED) {
        puts("skip: forks, under a sanitizer");
    } else {
        try("in a forked child too", forked, 3, 2, 0);
        try("and in one of a thread", forked_by_thread, 3, 2, 0);
        try("a callback forks", callback_forks, 3, 2, 0);
    }
    try("threads of ours, made at exit", used_at_exit, 3, 1, 0);
    try("threads of ours that end at exit", ended_at_exit, 3, 1, 0);
    try("made by threads of ours", made_by_ours, 10 * rounds, 1, 0);
    try("by such as come to run late", made_slowly, rounds, 1, 0);
    try("a callback ends its thread", callback_ends_thread, 3, 1, 3);
    try("a callback makes a thread", callback_makes_thread, 3, 1, 0);
    try("stdio locks, as with any thread", stdio_locks, 1, 1, 0);
    return api_end();
}
