/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file is mapped while another thread cuts it, where somebody watches
 * already (everything, or what was there before), after the hook of the cut
 * has looked where the file is mapped. With that hook slowed down
 * (LAPSE_TEST_DELAY_BEFORE) this is met often.
 */
#include <pthread.h>
#include <sched.h>

#include "api.h"

#define RW (PROT_READ | PROT_WRITE)
#define PAGES 4
#define ROUNDS 300

static int file;
static uint64_t cut_after; /* ns; written before `go` */
static atomic_int go; /* the other thread is to cut, or has not yet done so */

static void spin(uint64_t ns)
{
    for (uint64_t end = now_ns() + ns; now_ns() < end;)
        ;
}

static void *cut(void *unused)
{
    (void)unused;
    for (;;) {
        int now = atomic_load(&go);

        if (now < 0)
            return NULL;
        if (!now) {
            sched_yield();
            continue;
        }
        spin(cut_after);
        need(ftruncate(file, 0) == 0, "ftruncate");
        atomic_store(&go, 0);
    }
}

/* Is any page of p told as a file's? */
static bool is_told(lapse_handle h, const char *p)
{
    struct lapse_event e[16];
    bool told = false;
    int n;

    while ((n = lapse_poll(h, e, 16)) > 0)
        for (int i = 0; i < n; i++)
            told |= e[i].reason == LAPSE_REASON_FILE &&
                    e[i].addr < (uintptr_t)p + PAGE &&
                    e[i].addr + e[i].len > (uintptr_t)p;
    return told;
}

static char *map(char *at, int how)
{
    char *other;

    if (how == 0)
        return mmap(at, PAGES * PAGE, RW, MAP_SHARED | MAP_FIXED, file, 0);
    other = mmap(NULL, PAGES * PAGE, RW, MAP_SHARED, file, 0);
    return mremap(other, PAGES * PAGE, PAGES * PAGE,
                  MREMAP_MAYMOVE | MREMAP_FIXED, at);
}

static void test(const char *name, unsigned flags, int how)
{
    struct lapse_subscription s = {
        .size = sizeof s, .delivery = LAPSE_POLL, .flags = flags};
    char *at = fresh(PAGES * PAGE), *p;
    int silent = 0, met = 0;
    lapse_handle h;

    need(lapse_subscribe(&s, &h) == 0, "subscribe");
    need(lapse_watch(h, at, PAGES * PAGE) == 0, "watch");
    for (int i = 0; i < ROUNDS; i++) {
        unsigned char byte = 1;
        bool early, told;

        need(ftruncate(file, PAGES * PAGE) == 0, "ftruncate");
        need(pwrite(file, &byte, 1, 0) == 1, "pwrite");
        is_told(h, at);
        /* mremap is slowed down twice itself, so it must begin first */
        cut_after = how ? (uint64_t)i % 50 * 8000 : 0;
        atomic_store(&go, 1);
        spin(how ? 0 : (uint64_t)i % 50 * 4000);
        p = map(at, how);
        need(p == at, "mapped");
        /* It reached the byte of before when it was mapped, or the cut came
         * first and nothing is to be told. */
        early = mincore(p, PAGE, &byte) == 0 && (byte & 1);
        told = is_told(h, p);
        while (atomic_load(&go))
            sched_yield();
        told |= is_told(h, p);
        met += early;
        silent += early && !told;
        mmap(at, PAGES * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0);
    }
    check(!silent && met, "%s: told (not %d of %d times)", name, silent, met);
    lapse_unsubscribe(h);
    munmap(at, PAGES * PAGE);
}

int main(void)
{
    pthread_t thread;

    file = memfd_create("cut", 0);
    need(file >= 0 && !pthread_create(&thread, NULL, cut, NULL), "begin");
    test("everything is watched, mmap", LAPSE_ALL, 0);
    test("everything is watched, mremap", LAPSE_ALL, 1);
    test("what was there is watched still, mmap", 0, 0);
    atomic_store(&go, -1);
    pthread_join(thread, NULL);
    return api_end();
}
