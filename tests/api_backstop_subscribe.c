/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LAPSE_BACKSTOP=uffd: who subscribes in the middle of a round of the reader,
 * watches, and releases, is told at once as ever. To be run with that variable
 * set, and with the reader slowed down (LAPSE_TEST_DELAY_BEFORE) to meet it.
 */
#include <pthread.h>

#include "tests/backstop.h"

#define ROUNDS 300

static atomic_int stop;

/* Keeps the reader busy with a page of somebody else. */
static void *release(void *arg)
{
    lapse_handle other;
    struct lapse_subscription how = {.size = sizeof how,
                                     .delivery = LAPSE_POLL};
    struct lapse_event e[16];
    char *p = fresh(PAGE);

    (void)arg;
    need(lapse_subscribe(&how, &other) == 0, "subscribe");
    need(lapse_watch(other, p, PAGE) == 0, "watch");
    while (!atomic_load(&stop)) {
        p[0] = 1;
        sys(SYS_mmap, p, PAGE, RW, ANON | MAP_FIXED, -1, 0);
        lapse_unwatch(other, p, PAGE);
        lapse_watch(other, p, PAGE);
        while (lapse_poll(other, e, 16) == 16)
            ;
    }
    lapse_unsubscribe(other);
    return NULL;
}

int main(void)
{
    struct lapse_subscription how = {.size = sizeof how,
                                     .delivery = LAPSE_POLL};
    pthread_t thread;
    int silent = 0;
    char *p;

    if (!covered()) {
        printf("skipped: the kernel gives no userfaultfd here\n");
        return 77;
    }
    need(!pthread_create(&thread, NULL, release, NULL), "thread");
    for (int i = 0; i < ROUNDS; i++) {
        p = fresh(PAGE);
        need(lapse_subscribe(&how, &sub) == 0, "subscribe");
        need(lapse_watch(sub, p, PAGE) == 0, "watch");
        drain();
        sys(SYS_munmap, p, PAGE);
        silent += !lapse_pending(sub);
        need(lapse_unsubscribe(sub) == 0, "unsubscribe");
        sleep_us(i % 7 * 50);
    }
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
    check(!silent, "pending when the munmap returns (not %d of %d times)",
          silent, ROUNDS);
    return api_end();
}
