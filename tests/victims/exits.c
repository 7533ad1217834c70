/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every way to end is told to the parent as ever, and a program starts with
 * the descriptors, signals and threads that it was given, and no more.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/resource.h>

#include "victim.h"

#define LIMIT 5.0

static void release(void)
{
    char *p = fresh(4 * PAGE);

    churn(1 << 20);
    if (madvise(p, PAGE, MADV_DONTNEED) || p[0] || munmap(p, 4 * PAGE))
        _exit(99);
}

static void end_exit(void)
{
    atexit(release);
    exit(7);
}

static void end_exit_now(void)
{
    _exit(8);
}

static void end_raise_segv(void)
{
    raise(SIGSEGV);
}

static void end_fault(void)
{
    char *p = fresh(PAGE);

    munmap(p, PAGE);
    *(volatile char *)p = 1;
}

static void end_int3(void)
{
    __asm__ volatile("int3");
}

static void end_ud2(void)
{
    __asm__ volatile("ud2");
}

static void end_kill(void)
{
    kill(getpid(), SIGKILL);
    pause();
}

static void *thread_exit(void *unused)
{
    release();
    exit(9);
    return unused;
}

static void *thread_run(void *unused)
{
    for (;;)
        release();
    return unused;
}

static void end_in_thread(void)
{
    pthread_t thread;

    pthread_create(&thread, NULL, thread_run, NULL);
    pthread_create(&thread, NULL, thread_exit, NULL);
    pthread_exit(NULL);
}

static void end_with_threads(void)
{
    pthread_t thread;

    for (int i = 0; i < 4; i++)
        pthread_create(&thread, NULL, thread_run, NULL);
    release();
    exit(10);
}

static void *thread_return(void *unused)
{
    release();
    return unused;
}

static void end_last_thread(void)
{
    pthread_t thread;

    pthread_create(&thread, NULL, thread_return, NULL);
    pthread_exit(NULL); /* the last thread that ends makes it exit(0) */
}

static void try_end(const char *what, void (*how)(void))
{
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        how();
        _exit(98);
    }
    printf("%s: wait status %#x\n", what, (unsigned)wait_for(pid, LIMIT));
}

/* Runs this program again, with 0, 1 and 2 closed. */
static void try_closed(void)
{
    char self[] = "/proc/self/exe";
    pid_t pid;
    int status;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        close(0);
        close(1);
        close(2);
        execl(self, "exits", "closed", (char *)NULL);
        _exit(97);
    }
    status = wait_for(pid, LIMIT);
    if (status)
        differs("with 0, 1 and 2 closed: wait status %#x", (unsigned)status);
    else
        printf("ok with 0, 1 and 2 closed\n");
}

/* In that program: nobody took the free places. */
static int closed(void)
{
    for (int i = 0; i < 3; i++) {
        release();
        if (fcntl(i, F_GETFD) != -1)
            return 10 + i;
    }
    for (int i = 0; i < 3; i++)
        if (open("/dev/null", O_RDWR) != i)
            return 20 + i;
    return 0;
}

static void show_state(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    struct sigaction act;
    sigset_t blocked;
    int handled = 0;

    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "Threads:", 8) || !strncmp(line, "Sig", 3) ||
            !strncmp(line, "NoNewPrivs:", 11) || !strncmp(line, "Seccomp:", 8))
            fputs(strncmp(line, "SigQ:", 5) ? line : "", stdout);
    if (f)
        fclose(f);
    for (int i = 1; i < 65; i++)
        handled += sigaction(i, NULL, &act) == 0 &&
                   act.sa_handler != SIG_DFL && act.sa_handler != SIG_IGN;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (int i = 1; i < 65; i++)
        if (sigismember(&blocked, i) == 1)
            printf("blocked: %d\n", i);
    printf("signals handled: %d\n", handled);
    for (int i = 0; i < 64; i++) /* which descriptors are open */
        if (fcntl(i, F_GETFD) != -1)
            printf("descriptor: %d\n", i);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "closed"))
        return closed();
    show_state();
    try_end("exit", end_exit);
    try_end("_exit", end_exit_now);
    try_end("abort", abort);
    try_end("raise SIGSEGV", end_raise_segv);
    try_end("fault", end_fault);
    try_end("breakpoint", end_int3);
    try_end("bad instruction", end_ud2);
    try_end("kill", end_kill);
    try_end("exit in a thread", end_in_thread);
    try_end("exit while threads release", end_with_threads);
    try_end("last thread ends", end_last_thread);
    try_closed();
    return victim_end();
}
