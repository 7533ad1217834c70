/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * J1: two threads release watched blocks nonstop, main forks; the child uses
 * malloc and free, releases watched memory, is told of it, and ends or execs.
 * Every child ends within 2 s. With --expect-fault a handler inside the
 * release takes a lock, which some child then finds held by a thread that it
 * does not have.
 * Usage: case_j1 [--expect-fault] [FORKS]
 */
#include <pthread.h>

#include "case.h"

#define LIMIT 2.0 /* seconds */
#define BATCH 16
#define BLOCK 400000
#define MIB (1ul << 20)

static lapse_handle sub;
static atomic_bool stop;

/* One full round; true if an event overlaps. */
static bool told_of(const void *addr, size_t len)
{
    struct lapse_event ev[BATCH];
    bool hit = false;
    int n;

    do {
        n = lapse_poll(sub, ev, BATCH);
        for (int i = 0; i < n; i++)
            hit |= event_overlaps(&ev[i], addr, len);
    } while (n == BATCH);
    return hit;
}

static void *releaser(void *unused)
{
    while (!atomic_load(&stop)) {
        char *p = fresh(4 * PAGE), *q = malloc(BLOCK);
        const void *was = q;

        q[0] = 1;
        KEEP(was);
        lapse_watch(sub, p, 4 * PAGE);
        lapse_watch(sub, was, BLOCK);
        munmap(p, 4 * PAGE);
        lapse_unwatch(sub, p, 4 * PAGE);
        free(q);
        lapse_unwatch(sub, was, BLOCK);
    }
    return unused;
}

/* A block of the parent's, watched there; returns the step that failed. */
static int child(char *block)
{
    char *p = fresh(4 * PAGE), *q;

    if (lapse_watch(sub, p, 4 * PAGE))
        return 1;
    if (!SANITIZED) { /* in theirs another thread may hold a lock for ever */
        q = malloc(MIB);
        memset(q, 1, MIB);
        KEEP(q);
        if (lapse_watch(sub, q, MIB))
            return 2;
        free(q);
        q = malloc(100);
        KEEP(q);
        free(q);
    }
    munmap(p, 4 * PAGE);
    munmap(block, PAGE);
    if (expect_fault)
        return 0; /* INLINE: there is nothing to ask for */
    if (!told_of(p, 4 * PAGE))
        return 3;
    munmap(block + PAGE, PAGE);
    if (!told_of(block + PAGE, PAGE))
        return 4;
    return lapse_pending(sub) ? 5 : 0;
}

static void test_forks(int forks)
{
    pthread_t thread[2];
    char *block = fresh(2 * PAGE);
    int bad = 0;

    need(lapse_watch(sub, block, 2 * PAGE) == 0, "watch");
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, releaser, NULL);
    for (int i = 0; i < forks && !bad; i++) {
        pid_t pid = fork();
        int status;

        if (pid == 0) {
            int step = child(block);

            if (i % 16 == 1 && !step)
                execl("/bin/true", "true", (char *)NULL);
            _exit(step);
        }
        status = pid < 0 ? -1 : wait_for(pid, LIMIT);
        bad = status != 0;
        if (bad)
            printf("child %d: %s, wait status %#x\n", i,
                   status == -1 ? "hung" : "ended", (unsigned)status);
        if (i % 4 == 0)
            told_of(block, PAGE);
    }
    must(!bad, "J1: %d forks while watched memory is released", forks);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
}

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

static void on_event(const struct lapse_event *e, void *arg)
{
    (void)e;
    pthread_mutex_lock(&m);
    for (int i = 0; i < 1000; i++)
        KEEP(arg);
    pthread_mutex_unlock(&m);
}

int main(int argc, char **argv)
{
    int forks;

    (void)argc;
    argv = case_begin(argv);
    forks = argv[1] ? atoi(argv[1]) : 5000;
    alarm(20 + (unsigned)forks / 50); /* a hang of the parent, too */
    sub = expect_fault
              ? subscribe(LAPSE_INLINE, LAPSE_FORK_KEEP, on_event, NULL)
              : subscribe(LAPSE_POLL, LAPSE_FORK_KEEP, NULL, NULL);
    test_forks(forks);
    return api_end();
}
