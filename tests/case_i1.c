/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * I1: hooks come and go while threads run through them; none may crash.
 * Preloaded: the first subscription and the last unsubscription, 10 000 times.
 * --late LIBRARY: the library is opened and closed while they run, 10 000
 * times in one process, and for the first time in each of 50 processes.
 * --expect-fault: a patcher that writes over a prologue as if it were alone.
 * Usage: case_i1 [--expect-fault | --late LIBRARY] [TIMES]
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

#include "case.h"
#include "case_foreign.h"

#define THREADS 4
#define BLOCK 300000
#define PROCESSES 50

static atomic_bool stop;
static atomic_ulong loops, wrong, calls;

static void *storm(void *unused)
{
    while (!atomic_load(&stop)) {
        char *p = fresh(PAGE), *q = malloc(BLOCK);

        q[0] = q[BLOCK - 1] = 1;
        KEEP(q);
        if (munmap(p, PAGE))
            atomic_fetch_add(&wrong, 1);
        free(q);
        atomic_fetch_add(&loops, 1);
    }
    return unused;
}

static pthread_t thread[THREADS];

static void start_storm(void)
{
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, storm, NULL);
    while (atomic_load(&loops) < 100)
        sched_yield();
}

static void end_storm(void)
{
    unsigned long more = atomic_load(&loops) + 100;

    while (atomic_load(&loops) < more)
        sched_yield();
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
}

static void on_event(const struct lapse_event *e, void *arg)
{
    (void)e;
    (void)arg;
    atomic_fetch_add(&calls, 1);
}

static void test_subscribe(int times)
{
    start_storm();
    for (int i = 0; i < times; i++) {
        uint32_t how = (uint32_t)i % 3;
        lapse_handle s = subscribe(how, LAPSE_ALL,
                                   how == LAPSE_POLL ? NULL : on_event, NULL);
        struct lapse_event events[16];

        if (i % 64 == 0)
            sleep_us(100);
        if (how == LAPSE_POLL)
            need(lapse_poll(s, events, 16) >= 0, "lapse_poll");
        need(lapse_unsubscribe(s) == 0, "lapse_unsubscribe");
    }
    end_storm();
    check(atomic_load(&wrong) == 0,
          "I1: no crash and right results: %lu "
          "loops, %d times, %lu calls",
          atomic_load(&loops), times, atomic_load(&calls));
    check(atomic_load(&calls) > 0, "I1: handlers ran meanwhile");
}

static void open_and_close(const char *library)
{
    void *handle = dlopen(library, RTLD_NOW);

    if (!handle)
        fprintf(stderr, "%s\n", dlerror());
    need(handle != NULL, library);
    need(dlclose(handle) == 0, "dlclose");
}

/* In a process of its own. */
static int open_in_storm(const char *library, int times)
{
    start_storm();
    for (int i = 0; i < times; i++)
        open_and_close(library);
    end_storm();
    return atomic_load(&wrong) != 0;
}

static void test_late(const char *library, int times)
{
    for (int i = 0; i <= PROCESSES; i++) {
        pid_t pid = fork();
        int status;

        need(pid >= 0, "fork");
        if (pid == 0)
            _exit(open_in_storm(library, i ? 1 : times));
        status = wait_for(pid, HANG);
        if (status) {
            check(false, "I1: opened late: wait status %#x in process %d",
                  (unsigned)status, i);
            return;
        }
    }
    check(true, "I1: opened and closed %d times in one process, and in %d",
          times, PROCESSES);
}

static int hook(void *p, size_t len)
{
    return (int)syscall(SYS_munmap, p, len);
}

/* In a process of its own. */
static int patch_in_storm(int times)
{
    void *munmap_of_libc = dlsym(RTLD_DEFAULT, "munmap");
    struct prologue p;

    start_storm();
    for (int i = 0; i < times; i++) {
        prologue_install(&p, munmap_of_libc, hook);
        prologue_remove(&p);
    }
    end_storm();
    return 0;
}

/* How it goes where a longer patch is written by plain stores: soon. */
static void show_fault(int times)
{
    int status = 0;

    for (int i = 0; i < PROCESSES && !status; i++) {
        pid_t pid = fork();

        need(pid >= 0, "fork");
        if (pid == 0)
            _exit(patch_in_storm(times));
        status = wait_for(pid, HANG);
    }
    must(status == 0, "I1: a plain patcher: wait status %#x", (unsigned)status);
}

int main(int argc, char **argv)
{
    const char *library = NULL;
    int times;

    (void)argc;
    argv = case_begin(argv);
    alarm(60); /* it is long, not hung */
    if (argv[1] && !strcmp(argv[1], "--late")) {
        library = argv[2];
        argv += 2;
    }
    times = argv[1] ? atoi(argv[1]) : 10000;
    if (expect_fault)
        show_fault(times);
    else if (library)
        test_late(library, times);
    else {
        need(with_library(), "a preloaded library");
        test_subscribe(times);
    }
    return api_end();
}
