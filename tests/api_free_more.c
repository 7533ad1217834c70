/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * FREE, by functions that only some allocators have, by operator delete, in
 * INLINE handlers, in a forked child and in many threads. As api_free, needs
 * LAPSE_FREE=1. Usage: api_free_more [SECONDS]
 */
#include <dlfcn.h>
#include <pthread.h>

#include "api_free.h"

#define THREADS 8

/* What only some allocators have. */
static void test_own_functions(void)
{
    static const struct {
        const char *name;
        size_t a, b; /* arguments behind the block of 3000 bytes */
    } frees[] = {
        {"dallocx", 0, 0},
        {"sdallocx", 3000, 0},
        {"tc_free", 0, 0},
        {"tc_free_sized", 3000, 0},
        {"tc_delete", 0, 0},
        {"tc_delete_sized", 3000, 0},
        {"tc_delete_aligned", 16, 0},
        {"tc_delete_nothrow", 0, 0},
        {"mi_free", 0, 0},
        {"mi_free_size", 3000, 0},
        {"mi_cfree", 0, 0},
        {"cfree", 0, 0},
        {"scalable_free", 0, 0},
        {"scalable_aligned_free", 0, 0},
        {"__TBB_malloc_safer_free", 0, 0},
    };
    static const char *const reallocs[] = {
        "rallocx",     "tc_realloc",       "mi_realloc",
        "mi_rezalloc", "scalable_realloc", "__TBB_malloc_safer_realloc"};
    bool tbb = dlsym(RTLD_DEFAULT, "__TBB_malloc_proxy");

    for (size_t i = 0; i < sizeof(frees) / sizeof(frees[0]); i++) {
        void *f = dlsym(RTLD_DEFAULT, frees[i].name);

        if (f)
            freed_by(frees[i].name, malloc(3000), (free_like *)f, frees[i].a,
                     frees[i].b);
    }
    for (size_t i = 0; i < sizeof(reallocs) / sizeof(reallocs[0]); i++) {
        void *f = dlsym(RTLD_DEFAULT, reallocs[i]);

        if (!f || (strstr(reallocs[i], "TBB") && !tbb))
            continue;
        resized_by(reallocs[i], malloc(3000), (realloc_like *)f, 90000, 0,
                   false);
        resized_by(reallocs[i], malloc(90000), (realloc_like *)f, 3000, 0,
                   false);
    }
}

static void test_xallocx(void)
{
    size_t (*xallocx)(void *, size_t, size_t, int);
    size_t len, left;
    uintptr_t was;
    char *p;

    *(void **)&xallocx = dlsym(RTLD_DEFAULT, "xallocx");
    if (!xallocx)
        return;
    p = malloc(1 << 20);
    len = watched_len(p);
    was = (uintptr_t)p;
    KEEP(was);
    drain();
    left = xallocx(p, 64 << 10, 0, 0);
    told("xallocx that shrinks", was + left, left < len ? len - left : 0);
    check(left < len, "it shrank to %zu", left);
    xallocx(p, left, 0, 0);
    told("xallocx that does nothing", 0, 0);
    free(p);
    drain();
    unwatched(was, len);
}

/* As a C++ program calls them; libstdc++'s call free(). */
static void test_delete(void)
{
    static const struct {
        const char *name;
        size_t a, b;
    } deletes[] = {
        {"_ZdlPv", 0, 0},
        {"_ZdaPv", 0, 0},
        {"_ZdlPvm", 3000, 0},
        {"_ZdaPvm", 3000, 0},
        {"_ZdlPvRKSt9nothrow_t", 0, 0},
        {"_ZdaPvRKSt9nothrow_t", 0, 0},
        {"_ZdlPvSt11align_val_t", 64, 0},
        {"_ZdaPvSt11align_val_t", 64, 0},
        {"_ZdlPvmSt11align_val_t", 3000, 64},
        {"_ZdaPvmSt11align_val_t", 3000, 64},
    };
    void *cxx = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_GLOBAL);
    void *(*new)(size_t), *(*new_aligned)(size_t, size_t);

    if (!cxx) {
        printf("skipped: operator delete: no libstdc++.so.6\n");
        return;
    }
    *(void **)&new = dlsym(RTLD_DEFAULT, "_Znwm");
    *(void **)&new_aligned = dlsym(RTLD_DEFAULT, "_ZnwmSt11align_val_t");
    for (size_t i = 0; i < sizeof(deletes) / sizeof(deletes[0]); i++) {
        void *f = dlsym(RTLD_DEFAULT, deletes[i].name);
        bool aligned = strstr(deletes[i].name, "align");

        need(f && new &&new_aligned, deletes[i].name);
        freed_by(deletes[i].name, aligned ? new_aligned(3000, 64) : new (3000),
                 (free_like *)f, deletes[i].a, deletes[i].b);
    }
}

static _Atomic int inline_open, inline_closed, inline_intact;

static void on_inline(const struct lapse_event *e, void *arg)
{
    const char *p = (const char *)e->addr;
    bool intact = true;

    (void)arg;
    if (e->reason != LAPSE_REASON_FREE)
        return;
    if (!(e->flags & LAPSE_EVENT_OPEN)) {
        atomic_fetch_add(&inline_closed, 1);
        return;
    }
    atomic_fetch_add(&inline_open, 1);
    for (int i = 0; i < 2000; i++)
        intact &= p[i] == 0x5a;
    atomic_fetch_add(&inline_intact, intact);
}

static void test_inline(void)
{
    lapse_handle h;
    void *p = malloc(2000);

    memset(p, 0x5a, 2000);
    need(subscribe_free(LAPSE_INLINE, FREE_MASK, 0, on_inline, &h) == 0,
         "subscribe");
    need(lapse_watch(h, p, 2000) == 0, "watch");
    KEEP(p);
    free(p);
    check(inline_open == 1 && inline_closed == 1,
          "INLINE: before and after (%d, %d)", inline_open, inline_closed);
    check(inline_intact == 1, "before: the block was the program's still");
    lapse_unsubscribe(h);
}

static void test_fork(void)
{
    lapse_handle own = sub;
    pid_t pid;

    need(subscribe_free(LAPSE_POLL, FREE_MASK, LAPSE_FORK_KEEP, NULL, &sub) ==
             0,
         "subscribe");
    char *p = malloc(1000);
    size_t len = watched_len(p);
    uintptr_t was = (uintptr_t)p;
    KEEP(was);
    drain();
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        free(p);
        drain();
        _exit(!(event_count == 1 && is_free(&events[0], was, len)));
    }
    check(wait_for(pid, 5) == 0, "a forked child is told its own free");
    told("and the parent not", 0, 0);
    free(p);
    lapse_unsubscribe(sub);
    sub = own;
}

/* Threads: each is told of what it frees, whoever else frees beside it. */
static uint64_t hammer_end;
static atomic_long hammered, missed;

static bool hammer_told(lapse_handle h, uintptr_t p, size_t len)
{
    struct lapse_event e[16];
    bool found = false;
    int n;

    do {
        n = lapse_poll(h, e, 16);
        for (int i = 0; i < n; i++)
            found |= e[i].flags & LAPSE_EVENT_OVERFLOW ||
                     (e[i].reason == LAPSE_REASON_FREE && e[i].addr == p &&
                      e[i].len == len);
    } while (n == 16);
    return found;
}

static void *hammer(void *arg)
{
    uint64_t seed = (uintptr_t)arg + 1;
    lapse_handle h;

    need(subscribe_free(LAPSE_POLL, FREE_MASK, 0, NULL, &h) == 0, "subscribe");
    while (now_ns() < hammer_end) {
        size_t size = random_next(&seed) % 20000 + 1, len;
        void *p = malloc(size), *q = NULL;
        uintptr_t was = (uintptr_t)p;
        bool gone = true;

        KEEP(p);
        len = malloc_usable_size(p);
        need(lapse_watch(h, p, size) == 0, "watch");
        if (seed & 64) {
            q = realloc(p, random_next(&seed) % 40000 + 1);
            gone = (uintptr_t)q != was;
        } else
            free(p);
        if (gone && !hammer_told(h, was, len))
            atomic_fetch_add(&missed, 1);
        need(lapse_unwatch(h, (void *)was, size) == 0, "unwatch");
        free(q);
        atomic_fetch_add(&hammered, 1);
    }
    lapse_unsubscribe(h);
    return NULL;
}

static void test_threads(double seconds)
{
    pthread_t thread[THREADS];

    hammer_end = now_ns() + (uint64_t)(seconds * 1e9);
    for (uintptr_t i = 0; i < THREADS; i++)
        need(!pthread_create(&thread[i], NULL, hammer, (void *)i), "thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    check(missed == 0 && hammered > 0, "%d threads, %ld blocks, %ld missed",
          THREADS, hammered, missed);
}

int main(int argc, char **argv)
{
    if (SANITIZED) {
        printf("skipped: free is the sanitizer's here\n");
        return 77;
    }
    free_begin();
    test_own_functions();
    test_xallocx();
    test_delete();
    test_inline();
    test_fork();
    test_threads(argc > 1 ? atof(argv[1]) : 1);
    lapse_unsubscribe(sub);
    return api_end();
}
