/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LAPSE_BACKSTOP=uffd: while a hook has a watched range lifted, another thread
 * puts something into its middle that the kernel does not register. The rest
 * of it is told of as ever. To be run with that variable set.
 */
#include <fcntl.h>
#include <pthread.h>

#include "tests/backstop.h"

#define ROUNDS 400
#define PAGES 16

static atomic_int stop;

static void *advise(void *p)
{
    while (!atomic_load(&stop))
        madvise(p, PAGES * PAGE, MADV_DONTNEED);
    return NULL;
}

static bool is_silent(int file, unsigned round)
{
    uint64_t end;
    pthread_t thread;
    bool silent;
    char *p = watched(PAGES);

    atomic_store(&stop, 0);
    need(!pthread_create(&thread, NULL, advise, p), "thread");
    for (end = now_ns() + 20000 + round % 100 * 500; now_ns() < end;)
        ;
    mmap(p + PAGES / 2 * PAGE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, file,
         0);
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
    drain_all();
    sys(SYS_madvise, p, PAGE, MADV_DONTNEED);
    silent = !lapse_pending(sub);
    forget(p, PAGES);
    return silent;
}

int main(void)
{
    struct lapse_subscription how = {.size = sizeof how,
                                     .delivery = LAPSE_POLL};
    int file = open("/proc/self/exe", O_RDONLY), silent = 0;

    if (!covered()) {
        printf("skipped: the kernel gives no userfaultfd here\n");
        return 77;
    }
    need(lapse_subscribe(&how, &sub) == 0, "subscribe");
    for (unsigned i = 0; i < ROUNDS; i++)
        silent += is_silent(file, i);
    check(!silent, "told of the rest (not %d of %d times)", silent, ROUNDS);
    return api_end();
}
