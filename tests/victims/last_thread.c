/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes that end with their last thread, main having left by
 * pthread_exit(): exit(0) is called on that thread, handlers and stdio and all,
 * not before it and not long after; and signals find it as they should. Each is
 * this program executed anew, so that it starts with what is preloaded.
 * Usage: last_thread [WAY]
 */
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "victim.h"

#define LIMIT 10.0
#define LATE 2.0

extern char **environ;

static pthread_t first, last; /* main's; who is to end as the last one */
static pthread_key_t key;
static atomic_int ended; /* threads that are done with their work */

static void nap(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static void release(void)
{
    char *p = fresh(4 * PAGE);

    churn(1 << 20);
    if (madvise(p, PAGE, MADV_DONTNEED) || p[0] || munmap(p, 4 * PAGE))
        _exit(99);
}

/* Unflushed: it is seen only if exit() gets to the end. */
static void at_exit(void)
{
    sigset_t mask;
    int blocked = 0;

    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (int i = 1; i < 32; i++)
        blocked += sigismember(&mask, i) == 1;
    release();
    printf("exit: %d done, on %s, %d signals blocked\n", atomic_load(&ended),
           pthread_equal(pthread_self(), last)    ? "the last thread"
           : pthread_equal(pthread_self(), first) ? "main"
                                                  : "another",
           blocked);
}

/* Until main is gone: the calling thread ends after it. */
static void outlive_main(void)
{
    char path[64], line[256], state = 0;

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
    while (state != 'Z') {
        FILE *f = fopen(path, "r");

        if (!f || !fgets(line, sizeof line, f))
            _exit(96);
        fclose(f);
        state = strrchr(line, ')')[2];
        nap(1);
    }
}

static void start(void *(*run)(void *), void *arg)
{
    if (pthread_create(&last, NULL, run, arg))
        _exit(98);
}

static void *work(void *unused)
{
    for (int i = 0; i < 5; i++)
        release();
    atomic_fetch_add(&ended, 1);
    outlive_main();
    return unused;
}

static void *work_exit(void *unused)
{
    work(unused);
    pthread_exit(unused);
}

static void *wait_for_ever(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void destroy(void *value)
{
    nap(20);
    release();
    printf("destroy %s\n", (char *)value);
}

static void alone(void)
{
    last = first;
}

static void with_key(void)
{
    alone();
    pthread_key_create(&key, destroy);
    pthread_setspecific(key, "in main");
}

static void one_works(void)
{
    start(work, NULL);
}

static void one_exits(void)
{
    start(work_exit, NULL);
}

#define MANY 20
static pthread_t others[MANY];

static void *work_last(void *unused)
{
    for (int i = 0; i < MANY; i++)
        pthread_join(others[i], NULL);
    return work(unused);
}

static void many_work(void)
{
    for (int i = 0; i < MANY; i++)
        if (pthread_create(&others[i], NULL, i % 2 ? work : work_exit, NULL))
            _exit(98);
    start(work_last, NULL);
}

static void clean(void *unused)
{
    (void)unused;
    outlive_main();
    release();
    printf("cleaned\n");
}

static void *until_cancelled(void *unused)
{
    pthread_cleanup_push(clean, NULL);
    wait_for_ever(unused);
    pthread_cleanup_pop(0);
    return unused;
}

static void one_cancelled(void)
{
    start(until_cancelled, NULL);
    nap(20);
    pthread_cancel(last);
}

/* A chain: each makes the next one, which outlives it. */
static void *make_next(void *maker)
{
    pthread_t next;

    if (maker)
        pthread_join((pthread_t)maker, NULL);
    release();
    if (atomic_fetch_add(&ended, 1) == 100) {
        outlive_main();
        last = pthread_self();
    } else if (pthread_create(&next, NULL, make_next,
                              (void *)pthread_self())) {
        _exit(98);
    }
    return NULL;
}

static void chain(void)
{
    start(make_next, NULL);
}

/* The forked process has this thread alone, which returns. */
static void *fork_here(void *unused)
{
    pid_t pid = fork();

    if (pid == 0) {
        last = pthread_self();
        release();
        printf("the fork of a thread\n");
        return unused;
    }
    printf("wait status %#x\n", (unsigned)wait_for(pid, LIMIT));
    outlive_main();
    return unused;
}

static void forks(void)
{
    start(fork_here, NULL);
}

/* Signals, sent to the process when main is gone. */
static void say_ready(void)
{
    printf("ready\n");
    fflush(stdout);
}

static void *send(void *sig)
{
    outlive_main();
    kill(getpid(), (int)(intptr_t)sig);
    for (;;)
        pause();
    return NULL;
}

static void get_term(void)
{
    say_ready();
    start(send, (void *)SIGTERM);
}

static void get_int(void)
{
    say_ready();
    start(send, (void *)SIGINT);
}

static void get_alarm(void)
{
    say_ready();
    start(wait_for_ever, NULL);
    alarm(1);
}

static void *send_pending(void *sig)
{
    outlive_main();
    kill(getpid(), (int)(intptr_t)sig);
    nap(20);
    printf("it waits\n");
    return NULL;
}

static void block(int sig)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, sig);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void get_blocked(void)
{
    block(SIGTERM);
    start(send_pending, (void *)SIGTERM);
}

static void *send_three(void *unused)
{
    static const int sigs[] = {SIGUSR1, SIGTERM, SIGHUP};

    outlive_main();
    for (int i = 0; i < 3; i++) {
        while (atomic_load(&ended) < i)
            nap(1);
        kill(getpid(), sigs[i]);
    }
    return unused;
}

static void *wait_signals(void *unused)
{
    pthread_t sender;
    sigset_t set;
    int sig = 0;

    pthread_create(&sender, NULL, send_three, NULL);
    sigfillset(&set);
    for (int i = 0; i < 3; i++) {
        sigwait(&set, &sig);
        printf("sigwait: %d\n", sig);
        atomic_fetch_add(&ended, 1);
    }
    pthread_join(sender, NULL);
    return unused;
}

static void get_sigwait(void)
{
    block(SIGUSR1);
    block(SIGTERM);
    block(SIGHUP);
    start(wait_signals, NULL);
}

static void on_usr1(int sig)
{
    static const char text[] = "handler on the last thread\n";

    (void)sig;
    if (pthread_equal(pthread_self(), last))
        (void)!write(1, text, sizeof text - 1);
}

static void get_handled(void)
{
    signal(SIGUSR1, on_usr1);
    start(send_pending, (void *)SIGUSR1);
}

static void killed_at_exit(void)
{
    nap(20);
    kill(getpid(), SIGTERM);
    nap(20);
}

static void get_at_exit(void)
{
    atexit(killed_at_exit);
    start(work, NULL);
}

static const struct {
    const char *name;
    void (*how)(void);
} ways[] = {
    {"main alone", alone},
    {"main alone, a key destructor", with_key},
    {"one thread returns", one_works},
    {"one thread exits", one_exits},
    {"many threads", many_work},
    {"one thread is cancelled", one_cancelled},
    {"each thread makes the next", chain},
    {"a thread forks", forks},
    {"SIGTERM", get_term},
    {"SIGINT", get_int},
    {"SIGALRM", get_alarm},
    {"SIGTERM, blocked", get_blocked},
    {"sigwait", get_sigwait},
    {"a handler", get_handled},
    {"SIGTERM at exit", get_at_exit},
};

static void run(const char *name)
{
    first = pthread_self();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (!strcmp(ways[i].name, name)) {
            atexit(at_exit);
            ways[i].how();
            pthread_exit(NULL);
        }
    exit(97);
}

int main(int argc, char **argv)
{
    char self[] = "/proc/self/exe";

    if (argc > 1)
        run(argv[1]);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char *args[] = {self, (char *)ways[i].name, NULL};
        double begin = seconds();
        int status;
        pid_t pid;

        printf("%s:\n", ways[i].name);
        fflush(stdout);
        if (posix_spawn(&pid, self, NULL, NULL, args, environ))
            return 2;
        status = wait_for(pid, LIMIT);
        printf("wait status %#x, %s\n", (unsigned)status,
               seconds() - begin < LATE ? "in time" : "late");
    }
    return victim_end();
}
