/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * At every instruction of the library: a tracer steps one thread of a child
 * through each operation, and at each instruction in liblapse's text
 *  - delivers a signal whose handler releases (munmap, madvise), publishes,
 *    polls, writes an event, or forks a child that releases and polls; or
 *  - leaves the thread stopped there, while another thread releases, polls,
 *    watches and subscribes.
 * Nothing may hang, every release is told, closed, errno and results are
 * right. Each release has a page of its own, so that none hides another's.
 * An instruction that is come by again is used VISITS times: a handler that
 * pushes at every one would make an exchange of the push below it fail for
 * ever (the hook is lock-free: somebody gets on, here the handler).
 * Usage: step [--traced] [--every N]: only each Nth distinct instruction.
 * --traced: with a trace and stacks, what releases or writes; the forked child
 * goes on from there. The trace is whole then, with every event in it.
 */
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ptrace.h>
#include <sys/user.h>

#include "api.h"
#include "step_trace.h"

#define PAGES 65536ul  /* the arena that is watched as a whole */
#define VISITS 2
#define LIMIT 60       /* seconds until something counts as hung */
#define OTHER 40000ul  /* from here on pages are the other thread's */

enum act { ACT_RELEASE, ACT_PUBLISH, ACT_POLL, ACT_WRITE, ACT_FORK, ACT_HOLD,
           ACTS };
static const char *const act_name[] = {"a handler that releases",
                                       "a handler that publishes",
                                       "a handler that polls",
                                       "a handler that writes an event",
                                       "a handler that forks",
                                       "stopped, others go on"};

static struct shared {
    _Atomic int running;      /* the operation is under way */
    _Atomic int deadlk;       /* lapse_poll refused */
    _Atomic int bad;          /* line of the first thing that went wrong */
    _Atomic int bad_value;
    _Atomic long handled;
    _Atomic long rounds;      /* of the other thread */
    _Atomic long written;     /* events */
    uint8_t due[PAGES], told[PAGES];
} *shared;
static char *arena;
static lapse_handle mine, others, calls;
static _Atomic unsigned long next_page;
static enum act act;
static bool copied;    /* this is a forked child that goes on */
static int may_refuse; /* the operation holds the lock of `mine` */
static int to_other[2], from_other[2];
static uintptr_t text_start, text_end;

static void wrong(int line, int value)
{
    int none = 0;

    if (atomic_compare_exchange_strong(&shared->bad, &none, line))
        atomic_store(&shared->bad_value, value);
}
#define MUST(cond, value)                                                     \
    do {                                                                      \
        if (!(cond))                                                          \
            wrong(__LINE__, (int)(value));                                    \
    } while (0)

/* -EDEADLK, or how many events were told; notes which pages were. */
static int take_events(lapse_handle h, bool note)
{
    struct lapse_event e[64];
    int n;

    do {
        n = lapse_poll(h, e, 64);
        for (int i = 0; i < n; i++) {
            size_t page = (e[i].addr - (uintptr_t)arena) / PAGE;

            MUST(!(e[i].flags & LAPSE_EVENT_OVERFLOW), i);
            if (note && page < PAGES && !(e[i].flags & LAPSE_EVENT_OPEN))
                for (size_t k = 0; k * PAGE < e[i].len; k++)
                    shared->told[page + k] = 1;
        }
    } while (n == 64);
    return n;
}

static char *some_page(void)
{
    unsigned long k = atomic_fetch_add(&next_page, 1);

    if (k >= OTHER)
        wrong(__LINE__, (int)k);
    shared->due[k % PAGES] = 1;
    return arena + (k % PAGES) * PAGE;
}

static _Atomic long written_by_copy;

static bool put_event(void)
{
    static _Atomic uint64_t number;
    bool good = step_write(atomic_fetch_add(&number, 1));

    atomic_fetch_add(copied ? &written_by_copy : &shared->written, good);
    return good;
}

/* A child that was forked in the middle of an operation, and has ended it. */
static void copy_ends(void)
{
    bool good = put_event() &&
                !madvise(arena + (PAGES - 1) * PAGE, PAGE, MADV_DONTNEED) &&
                step_trace_good(getpid(), (uint64_t)written_by_copy,
                                (uint64_t)written_by_copy - 1, true);

    fflush(stdout);
    _exit(good ? 0 : 6);
}

static void forked_child(void)
{
    struct lapse_event e[64];
    char *p = arena + (PAGES - 1) * PAGE;
    bool seen = false;
    int n;

    alarm(LIMIT);
    if (madvise(p, PAGE, MADV_DONTNEED))
        _exit(2);
    do {
        n = lapse_poll(mine, e, 64);
        for (int i = 0; i < n; i++)
            seen |= event_overlaps(&e[i], p, PAGE) &&
                    !(e[i].flags & LAPSE_EVENT_OPEN);
    } while (n == 64);
    if (n == -EDEADLK)
        _exit(may_refuse ? 0 : 3);
    _exit(seen ? 0 : 4);
}

static void handler(int sig)
{
    int saved = errno, n, status;
    pid_t pid;

    (void)sig;
    switch (act) {
    case ACT_RELEASE:
        MUST(!madvise(some_page(), PAGE, MADV_DONTNEED), errno);
        MUST(!munmap(some_page(), PAGE), errno);
        break;
    case ACT_PUBLISH:
        MUST((n = lapse_publish(some_page(), PAGE)) == 0, n);
        break;
    case ACT_POLL:
        n = take_events(mine, true);
        if (n == -EDEADLK)
            atomic_fetch_add(&shared->deadlk, 1);
        MUST(n >= 0 || (n == -EDEADLK && may_refuse), n);
        break;
    case ACT_WRITE:
        MUST(put_event(), 0);
        break;
    case ACT_FORK:
        pid = fork();
        if (pid == 0 && step_dir) {
            copied = true;
            alarm(LIMIT);
            errno = saved;
            return;
        }
        if (pid == 0)
            forked_child();
        MUST(pid > 0, errno);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        MUST(status == 0, status);
        step_forget(pid);
        break;
    default:
        wrong(__LINE__, act);
    }
    atomic_fetch_add(&shared->handled, 1);
    errno = saved;
    __asm__ volatile("int3"); /* the tracer steps on from here */
}

/* --- the operations; each says whether it went as it should. --- */

static bool op_munmap(void)
{
    return munmap(some_page(), PAGE) == 0;
}
static bool op_madvise(void)
{
    return madvise(some_page(), PAGE, MADV_DONTNEED) == 0;
}
static bool op_fixed(void)
{
    char *p = some_page();

    return mmap(p, PAGE, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p;
}
static bool op_publish(void)
{
    return lapse_publish(some_page(), PAGE) == 0;
}
static bool op_poll(void)
{
    struct lapse_event e[4];
    int n = lapse_poll(mine, e, 4);

    for (int i = 0; i < n; i++)
        if (!(e[i].flags & LAPSE_EVENT_OPEN))
            shared->told[(e[i].addr - (uintptr_t)arena) / PAGE] = 1;
    return n >= 0;
}
static bool op_watch(void)
{
    return lapse_watch(mine, arena + PAGE * 3, 5 * PAGE) == 0;
}
static bool op_unwatch(void)
{
    return lapse_unwatch(mine, arena + PAGE * 3, 5 * PAGE) == 0;
}
static lapse_handle extra;
static bool op_subscribe(void)
{
    struct lapse_subscription how = {.size = sizeof how};

    return lapse_subscribe(&how, &extra) == 0;
}
static bool op_unsubscribe(void)
{
    return lapse_unsubscribe(extra) == 0;
}
static _Atomic long called;
static void callback(const struct lapse_event *e, void *arg)
{
    (void)e;
    (void)arg;
    atomic_fetch_add(&called, 1);
}
static bool op_sync(void)
{
    return lapse_sync(calls) == 0;
}

static const struct op {
    const char *name;
    bool (*run)(void);
    int refuses;  /* lapse_poll(mine) may be refused meanwhile */
    int registry; /* the others may not subscribe meanwhile */
    int traced;   /* it is tried with a trace; 2: and only then */
} ops[] = {
    {"munmap", op_munmap, 0, 0, 1},
    {"lapse_event_write", put_event, 0, 0, 2},
    {"madvise", op_madvise, 0, 0, 0},
    {"MAP_FIXED", op_fixed, 0, 0, 0},
    {"lapse_publish", op_publish, 0, 0, 0},
    {"lapse_poll", op_poll, 1, 0, 0},
    {"lapse_watch", op_watch, 1, 0, 0},
    {"lapse_unwatch", op_unwatch, 1, 0, 0},
    {"lapse_subscribe", op_subscribe, 0, 1, 0},
    {"lapse_unsubscribe", op_unsubscribe, 0, 0, 0},
    {"lapse_sync", op_sync, 0, 0, 0},
};

/* While the first thread stands still. */
static void *other_main(void *arg)
{
    const struct op *op = arg;
    unsigned long page = OTHER;
    lapse_handle h;
    char c;

    while (read(to_other[0], &c, 1) == 1) {
        char *p = arena + page * PAGE;
        struct lapse_subscription how = {.size = sizeof how};
        int n;

        MUST(!madvise(p, PAGE, MADV_DONTNEED), errno);
        MUST(!munmap(p + PAGE, PAGE), errno);
        shared->due[page] = shared->due[page + 1] = 1;
        MUST((n = take_events(others, true)) >= 0, n);
        MUST(shared->told[page] && shared->told[page + 1], page);
        MUST((n = lapse_watch(others, p, PAGE)) == 0, n);
        MUST((n = lapse_unwatch(others, p, PAGE)) == 0, n);
        if (!op->registry) {
            MUST((n = lapse_subscribe(&how, &h)) == 0, n);
            MUST((n = lapse_unsubscribe(h)) == 0, n);
        }
        page += 2;
        if (page >= PAGES - 2)
            page = OTHER;
        atomic_fetch_add(&shared->rounds, 1);
        n = (int)write(from_other[1], &c, 1);
    }
    return NULL;
}

static void child(const struct op *op)
{
    pthread_t other;
    lapse_handle warm[3];
    int n;

    arena = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    need(arena != MAP_FAILED, "mmap");
    may_refuse = op->refuses;
    mine = subscribe(LAPSE_POLL, LAPSE_FORK_KEEP, NULL, NULL);
    others = subscribe(LAPSE_POLL, LAPSE_FORK_KEEP, NULL, NULL);
    for (int i = 0; i < 3; i++) /* their pools are made here */
        warm[i] = subscribe(LAPSE_POLL, 0, NULL, NULL);
    for (int i = 0; i < 3; i++)
        lapse_unsubscribe(warm[i]);
    need(!lapse_watch(mine, arena, PAGES * PAGE), "watch");
    need(!lapse_watch(others, arena, PAGES * PAGE), "watch");
    if (op->run == op_sync) {
        calls = subscribe(LAPSE_CALLBACK, LAPSE_FORK_KEEP, callback, NULL);
        need(!lapse_watch(calls, arena, PAGES * PAGE), "watch");
    }
    if (op->run == op_unwatch)
        op_watch();
    if (op->run == op_unsubscribe)
        op_subscribe();
    need(!pthread_create(&other, NULL, other_main, (void *)(uintptr_t)op),
         "pthread_create");
    for (int i = 0; i < 3; i++) /* something waits */
        madvise(some_page(), PAGE, MADV_DONTNEED);
    signal(SIGUSR1, handler);
    if (ptrace(PTRACE_TRACEME, 0, 0, 0))
        _exit(77);
    errno = 77;
    shared->running = 1;
    __asm__ volatile("int3");
    n = op->run();
    if (copied)
        copy_ends();
    shared->running = 0;
    MUST(n, errno);
    MUST(errno == 77, errno);
    MUST(take_events(mine, true) == 0 || !lapse_pending(mine), 0);
    take_events(mine, true);
    MUST(!lapse_pending(mine), 0);
    for (size_t i = 0; i < OTHER; i++)
        MUST(shared->told[i] || !shared->due[i], i);
    if (op->run == op_sync)
        MUST(lapse_sync(calls) == 0 && called >= 3, called);
    _exit(0);
}

static int find_text(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "liblapse.so"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_flags & PF_X) {
            text_start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            text_end = text_start + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

static void on_alarm(int sig)
{
    (void)sig;
}

/* Resumes and waits for a SIGTRAP; other signals are passed on. */
static bool resume(pid_t pid, enum __ptrace_request how, int sig)
{
    int status;

    for (;;) {
        if (ptrace(how, pid, 0, sig) || waitpid(pid, &status, 0) != pid ||
            !WIFSTOPPED(status))
            return false;
        if (WSTOPSIG(status) == SIGTRAP)
            return true;
        sig = WSTOPSIG(status);
    }
}

static bool hold(void)
{
    struct pollfd in = {.fd = from_other[0], .events = POLLIN};
    char c = 0;

    return write(to_other[1], &c, 1) == 1 &&
           poll(&in, 1, LIMIT * 1000) == 1 && read(from_other[0], &c, 1) == 1;
}

static bool interrupt(pid_t pid, const struct user_regs_struct *at)
{
    struct user_regs_struct now;

    if (!resume(pid, PTRACE_CONT, SIGUSR1))
        return false;
    do {
        if (!resume(pid, PTRACE_SINGLESTEP, 0) ||
            ptrace(PTRACE_GETREGS, pid, 0, &now))
            return false;
    } while (now.rip != at->rip || now.rsp != at->rsp);
    return true;
}

/* Is this tried in this run? */
static bool wanted(const struct op *op)
{
    if (!step_dir)
        return op->traced < 2 && act != ACT_WRITE;
    return op->traced && (act == ACT_RELEASE || act == ACT_WRITE ||
                          act == ACT_FORK || act == ACT_HOLD);
}

static void trace(const struct op *op, long every)
{
    struct user_regs_struct at = {0};
    long distinct = 0, tried = 0, want = 0, done = 0;
    uint8_t *visits = calloc(1, text_end - text_start);
    bool good = true;
    int status = 0;
    pid_t pid;

    memset(shared, 0, sizeof *shared);
    need(!pipe2(to_other, O_CLOEXEC) && !pipe2(from_other, O_CLOEXEC), "pipe");
    pid = fork();
    need(pid >= 0, "fork");
    if (pid == 0)
        child(op);
    alarm(LIMIT);
    good = waitpid(pid, &status, 0) == pid && WIFSTOPPED(status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        printf("skip: ptrace is refused here\n");
        exit(77);
    }
    while (good && shared->running) {
        good = !ptrace(PTRACE_GETREGS, pid, 0, &at);
        if (good && at.rip >= text_start && at.rip < text_end) {
            uint8_t *v = &visits[at.rip - text_start];

            distinct += *v == 0;
            if (*v == 0 && distinct % every != 0)
                *v = VISITS; /* left out */
            if (*v < VISITS) {
                tried += *v == 0;
                ++*v;
                want++;
                alarm(LIMIT);
                good = act == ACT_HOLD ? hold() : interrupt(pid, &at);
                done += good;
            }
        }
        good = good && resume(pid, PTRACE_SINGLESTEP, 0);
    }
    alarm(LIMIT);
    if (good)
        good = !ptrace(PTRACE_CONT, pid, 0, 0) &&
               waitpid(pid, &status, 0) == pid && status == 0;
    good = good && !shared->bad && done == want && tried > 0 &&
           (act == ACT_HOLD ? shared->rounds : shared->handled) == done;
    good = good && step_trace_good(pid, (uint64_t)shared->written, 0,
                                   op->run != put_event ||
                                       act == ACT_RELEASE);
    check(good, "%s, %s: at %ld of %ld instructions, %ld times", op->name,
          act_name[act], tried, distinct, done);
    if (shared->deadlk)
        printf("      lapse_poll was refused at %d\n", shared->deadlk);
    free(visits);
    if (!good)
        printf("      at liblapse+0x%lx, line %d of step.c, value %d, "
               "status 0x%x\n",
               (unsigned long)(at.rip - text_start), shared->bad,
               shared->bad_value, (unsigned)status);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    for (int i = 0; i < 2; i++) {
        close(to_other[i]);
        close(from_other[i]);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    long every = argc > 2 && !strcmp(argv[1], "--every") ? atol(argv[2]) : 1;
    struct sigaction alarmed = {.sa_handler = on_alarm};

    if (argc > 1 && !strcmp(argv[1], "--traced"))
        return step_traced(argv);
    if (!getenv("LAPSE_RECORDS")) { /* all that is released waits for long */
        setenv("LAPSE_RECORDS", "16384", 1);
        execv("/proc/self/exe", argv);
    }
    step_trace_start();
    sigaction(SIGALRM, &alarmed, NULL);
    dl_iterate_phdr(find_text, NULL);
    need(text_start != 0, "liblapse is not here");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(shared != MAP_FAILED, "mmap");
    for (act = 0; act < ACTS; act++)
        for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
            if (wanted(&ops[i]))
                trace(&ops[i], every);
    return api_end();
}
