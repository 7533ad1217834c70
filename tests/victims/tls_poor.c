/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Takes what there is of spare static TLS, then opens a library late (liblapse,
 * whose path is the argument): it must load, at once or never try. The same
 * while four threads map, unmap, allocate and free: none may notice.
 * Usage: tls_poor LIBRARY [TIMES]
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "victim.h"

#define THREADS 4
#define LIMIT 20.0

static atomic_bool stop, wrong;
static atomic_ulong loops;

static void *storm(void *unused)
{
    while (!atomic_load(&stop)) {
        char *p = fresh(4 * PAGE), *q = malloc(300000);

        q[0] = q[299999] = 1;
        KEEP(q);
        if (madvise(p, PAGE, MADV_DONTNEED) || p[0] || p[PAGE] != 0x5a ||
            munmap(p, 4 * PAGE) || munmap(p + 1, 1) != -1 || errno != EINVAL)
            atomic_store(&wrong, true);
        free(q);
        atomic_fetch_add(&loops, 1);
    }
    return unused;
}

/* Waits until every thread went round some more times. */
static void let_run(unsigned long more)
{
    unsigned long target = atomic_load(&loops) + more;

    while (atomic_load(&loops) < target)
        sched_yield();
}

static bool open_late(const char *library)
{
    char *(*tls)(void);
    void *rich = dlopen(beside("lib_tls.so"), RTLD_NOW);

    if (!rich) {
        printf("DIFFERS: lib_tls.so: %s\n", dlerror());
        return false;
    }
    *(void **)&tls = dlsym(rich, "lib_tls_address");
    memset(tls(), 0x33, 1600);
    if (!dlopen(library, RTLD_NOW)) {
        printf("DIFFERS: %s\n", dlerror());
        return false;
    }
    for (int i = 0; i < 1600; i++)
        if (tls()[i] != 0x33)
            return false;
    return true;
}

static int open_in_storm(const char *library, unsigned after)
{
    pthread_t thread[THREADS];
    bool opened;

    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], NULL, storm, NULL))
            return 2;
    let_run(after);
    opened = open_late(library);
    let_run(200);
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    fflush(stdout);
    return !opened || atomic_load(&wrong);
}

int main(int argc, char **argv)
{
    const char *library = argc > 1 ? argv[1] : beside("../../liblapse.so");
    int times = argc > 2 ? atoi(argv[2]) : 20;

    fflush(stdout);
    for (int i = 0; i <= times && !victim_failures; i++) {
        /* Each in a process of its own, since the first time counts. */
        pid_t pid = fork();
        int status;

        if (pid == 0) {
            int failed = i ? open_in_storm(library, (unsigned)i * 7)
                           : !open_late(library);

            fflush(stdout);
            _exit(failed);
        }
        status = wait_for(pid, LIMIT);
        if (status)
            differs("%s: wait status %#x in round %d",
                    i ? "opened in a storm" : "opened late", (unsigned)status,
                    i);
    }
    check(!victim_failures, "opened late, with little static TLS");
    return victim_end();
}
