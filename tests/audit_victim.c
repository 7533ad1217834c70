/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Releases that nobody sees, planted for tests/audit.sh to find: made by the
 * program itself, without its C library. audit_victim WHAT [COUNT [LIBRARY]]
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audit_planted.h"

#define SIZE 8192

extern char **environ;

/* Named, not inlined: where the test looks for the instruction. */
__attribute__((noinline)) static long planted_munmap(void *at)
{
    long ret = planted_call(SYS_munmap, at, SIZE, 0);

    __asm__ volatile("" ::: "memory");
    return ret;
}

static void *page(void)
{
    return mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void inline_munmap(int count)
{
    for (int i = 0; i < count; i++)
        if (planted_munmap(page()))
            exit(3);
}

static void library(int count, const char *file)
{
    void *handle = dlopen(file, RTLD_NOW);
    long (*drop)(void *, long) =
        handle ? (long (*)(void *, long))dlsym(handle, "planted_madvise")
               : NULL;

    if (!drop)
        exit(3);
    for (int i = 0; i < count; i++)
        if (drop(page(), SIZE))
            exit(3);
    dlclose(handle);
}

/* Mapped one after the other, at the same addresses. */
static void reload(const char *first, const char *second)
{
    library(1, first);
    library(1, second);
}

/* Code of no file, as a JIT compiler makes it. */
static void made(int count)
{
    static const unsigned char code[] = {
        0xb8, SYS_munmap, 0, 0, 0, 0x0f, 0x05, 0xc3 /* mov, syscall, ret */
    };
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    memcpy(at, code, sizeof(code));
    for (int i = 0; i < count; i++)
        ((long (*)(void *, long))at)(page(), SIZE);
}

/* What libc does is seen, whichever way it is done. */
static void *thread(void *argument)
{
    int count = *(int *)argument;

    for (int i = 0; i < count; i++) {
        void *at = page();

        munmap(at, SIZE);
        free(malloc(1 << 20));
        if (i % 10 == 0)
            planted_munmap(page());
    }
    return NULL;
}

static void threads(int count)
{
    pthread_t all[64];

    for (int i = 0; i < 64; i++)
        pthread_create(&all[i], NULL, thread, &count);
    for (int i = 0; i < 64; i++)
        pthread_join(all[i], NULL);
}

/* Each child of each makes one, of itself. */
static void forks(int count)
{
    for (int i = 0; i < count; i++) {
        pid_t pid = fork();

        if (pid < 0)
            exit(3);
        if (!pid) {
            if (!fork()) {
                planted_munmap(page());
                _exit(0);
            }
            wait(NULL);
            planted_munmap(page());
            _exit(0);
        }
        if (i % 16 == 15)
            while (wait(NULL) > 0)
                ;
    }
    while (wait(NULL) > 0)
        ;
}

static void vfork_exec(const char *file, char *const *argv)
{
    pid_t pid = vfork();

    if (!pid) {
        execv(file, argv);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
}

static void spawns(int count, char *self)
{
    char *const argv[] = {self, "inline", "1", NULL};
    pid_t pid;

    for (int i = 0; i < count; i++) {
        if (posix_spawn(&pid, self, NULL, NULL, argv, environ))
            exit(3);
        waitpid(pid, NULL, 0);
        vfork_exec(self, argv);
        vfork_exec("/nosuch/program", argv);
    }
    inline_munmap(1);
}

/* The program replaces itself, from a thread that is not its first. */
static void *exec_thread(void *argument)
{
    char **argv = argument;
    int count = atoi(argv[2]);
    char rest[16];

    inline_munmap(1);
    snprintf(rest, sizeof(rest), "%d", count - 1);
    argv[2] = rest;
    if (count)
        execv("/proc/self/exe", argv);
    exit(count ? 3 : 0);
}

static void execs(char **argv)
{
    pthread_t other;

    pthread_create(&other, NULL, exec_thread, argv);
    for (;;)
        pause();
}

/* A file that is mapped, cut; and one that is not. */
static void file(void)
{
    int mapped = memfd_create("mapped", 0), other = memfd_create("other", 0);

    if (ftruncate(mapped, SIZE) || ftruncate(other, SIZE) ||
        mmap(NULL, SIZE, PROT_READ, MAP_SHARED, mapped, 0) == MAP_FAILED)
        exit(3);
    planted_call(SYS_ftruncate, (void *)(long)other, 0, 0);
    planted_call(SYS_ftruncate, (void *)(long)mapped, 2 * SIZE, 0);
    planted_call(SYS_ftruncate, (void *)(long)mapped, 0, 0);
}

/* Neither releases: wrong address, no length, a break that grows. */
static void nothing(void)
{
    char *now = (char *)planted_call(SYS_brk, NULL, 0, 0);

    planted_call(SYS_munmap, (char *)page() + 1, SIZE, 0);
    planted_call(SYS_munmap, page(), 0, 0);
    planted_call(SYS_madvise, page(), SIZE, MADV_WILLNEED);
    planted_call(SYS_brk, now + SIZE, 0, 0);
}

static void shrink(void)
{
    char *now = (char *)planted_call(SYS_brk, NULL, 0, 0);

    planted_call(SYS_brk, now + SIZE, 0, 0);
    planted_call(SYS_brk, now, 0, 0);
}

static volatile sig_atomic_t got;

static void on_alarm(int sig)
{
    got += sig == SIGALRM;
}

/* No call may fail for a signal, though the handler does not restart it. */
static void interrupted(int count)
{
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};

    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < count; i++)
        if (munmap(page(), SIZE) || planted_munmap(page()))
            exit(4);
    setitimer(ITIMER_REAL, &never, NULL);
    printf("%s\n", got > 10 ? "interrupted" : "never interrupted");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int count = argc > 2 ? atoi(argv[2]) : 1;

    if (!strcmp(what, "inline"))
        inline_munmap(count);
    else if (!strcmp(what, "library") && argc > 3)
        library(count, argv[3]);
    else if (!strcmp(what, "reload") && argc > 4)
        reload(argv[3], argv[4]);
    else if (!strcmp(what, "made"))
        made(count);
    else if (!strcmp(what, "threads"))
        threads(count);
    else if (!strcmp(what, "forks"))
        forks(count);
    else if (!strcmp(what, "spawns"))
        spawns(count, argv[0]);
    else if (!strcmp(what, "execs") && argc > 2)
        execs(argv);
    else if (!strcmp(what, "file"))
        file();
    else if (!strcmp(what, "nothing"))
        nothing();
    else if (!strcmp(what, "shrink"))
        shrink();
    else if (!strcmp(what, "interrupted"))
        interrupted(count);
    else
        return 2;
    return 0;
}
