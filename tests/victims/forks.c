/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fork storm: two threads release memory nonstop while the main one forks.
 * Every child allocates, frees, unmaps, and ends (or executes) in time.
 * Usage: forks [FORKS]
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "victim.h"

#define LIMIT 2.0 /* seconds that a child may take */

static atomic_bool stop;

static void *releaser(void *unused)
{
    while (!atomic_load(&stop)) {
        char *p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *q = malloc(400000);

        p[0] = q[0] = 1;
        KEEP(q);
        madvise(p, PAGE, MADV_DONTNEED);
        munmap(p, 4 * PAGE);
        free(q);
    }
    return unused;
}

static int child(int number)
{
    char *p = fresh(4 * PAGE), *q = malloc(1 << 20);

    memset(q, 1, 1 << 20);
    KEEP(q);
    free(q);
    churn(100);
    if (madvise(p, PAGE, MADV_DONTNEED) || p[0] || munmap(p, 4 * PAGE) ||
        is_mapped(p))
        return 3;
    if (number % 8 == 0) {
        execl("/bin/true", "true", (char *)NULL);
        return 4;
    }
    if (number % 8 == 1) { /* a grandchild, and the whole of exit() */
        pid_t pid = fork();

        if (pid == 0)
            exit(0);
        if (pid < 0 || wait_for(pid, LIMIT) != 0)
            return 5;
    }
    return 0;
}

int main(int argc, char **argv)
{
    int forks = argc > 1 ? atoi(argv[1]) : 500;
    pthread_t thread[2];

    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, releaser, NULL);
    for (int i = 0; i < forks && !victim_failures; i++) {
        pid_t pid;
        int status;

        fflush(stdout);
        pid = fork();
        if (pid == 0)
            _exit(child(i));
        status = pid < 0 ? 0x7f00 : wait_for(pid, LIMIT);
        if (status == -1)
            differs("child %d hung", i);
        else if (status != 0)
            differs("child %d: wait status %#x", i, (unsigned)status);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    check(!victim_failures, "all children ended");
    return victim_end();
}
