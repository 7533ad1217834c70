/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * FREE, by the byte: every function that gives a block back to the allocator
 * this process has, whichever that is. Needs LAPSE_FREE=1; with other
 * allocators preloaded it tries what they have of their own, too.
 * Usage: api_free [SECONDS]    or, without LAPSE_FREE: api_free --off
 */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>

#include "api.h"

#define EVENTS 1024
#define THREADS 8
#define FREE_MASK LAPSE_MASK(LAPSE_REASON_FREE)

static struct lapse_event events[EVENTS];
static int event_count;
static lapse_handle sub;

static int subscribe_free(uint32_t delivery, uint32_t reasons, uint32_t flags,
                          lapse_callback callback, lapse_handle *out)
{
    struct lapse_subscription how = {.size = sizeof how,
                                     .delivery = delivery,
                                     .flags = flags,
                                     .reasons = reasons,
                                     .callback = callback};

    return lapse_subscribe(&how, out);
}

static void drain(void)
{
    int n;

    event_count = 0;
    do {
        n = lapse_poll(sub, events + event_count, 16);
        need(n >= 0, "lapse_poll");
        event_count += n;
    } while (n == 16 && event_count < EVENTS - 16);
}

static void show(void)
{
    for (int i = 0; i < event_count; i++)
        printf("        told %s %#lx + %#zx flags %u\n",
               lapse_reason_name(events[i].reason),
               (unsigned long)events[i].addr, events[i].len,
               events[i].flags);
}

static bool is_free(const struct lapse_event *e, uintptr_t p, size_t len)
{
    return e->reason == LAPSE_REASON_FREE && e->addr == p && e->len == len &&
           e->flags == 0;
}

/* Of FREE, exactly this range and once; len 0: nothing at all. */
static void told(const char *what, uintptr_t p, size_t len)
{
    int frees = 0, right = 0;

    drain();
    for (int i = 0; i < event_count; i++) {
        frees += events[i].reason == LAPSE_REASON_FREE;
        right += is_free(&events[i], p, len);
    }
    if (!check(frees == (len != 0) && right == (len != 0),
               "%s: %s told (%d of FREE, %d right)", what,
               len ? "once, by the byte," : "nothing", frees, right)) {
        printf("        wanted %#lx + %#zx\n", (unsigned long)p, len);
        show();
    }
}

static size_t watched_len(void *p)
{
    size_t len = malloc_usable_size(p);

    need(p && len, "a block");
    need(lapse_watch(sub, p, len) == 0, "watch");
    return len;
}

static void unwatched(uintptr_t p, size_t len)
{
    KEEP(p); /* an address, not the block that was there */
    need(lapse_unwatch(sub, (void *)p, len) == 0, "unwatch");
    drain(); /* what the test itself freed nearby */
}

/* A block, freed by this function of one, two or three arguments. */
typedef void free_like(void *p, size_t a, size_t b);

static void freed_by(const char *what, void *p, free_like *f, size_t a,
                     size_t b)
{
    size_t len = watched_len(p);
    uintptr_t was = (uintptr_t)p;

    drain();
    f(p, a, b);
    told(what, was, len);
    unwatched(was, len);
}

static void by_free(void *p, size_t a, size_t b)
{
    (void)a;
    (void)b;
    KEEP(p);
    free(p);
}

typedef void *realloc_like(void *p, size_t size, size_t a);

static void *by_realloc(void *p, size_t size, size_t a)
{
    (void)a;
    return realloc(p, size);
}

static void *by_reallocarray(void *p, size_t size, size_t a)
{
    (void)a;
    return reallocarray(p, size, 1);
}

/* Returns whether it stayed where it was. */
static bool resized_by(const char *what, void *p, realloc_like *f,
                       size_t size, size_t a, bool quiet)
{
    uintptr_t was = (uintptr_t)p;
    size_t len = watched_len(p), left;
    bool stayed;
    void *q;

    drain();
    q = f(p, size, a);
    need(q || !size, what);
    stayed = (uintptr_t)q == was;
    left = stayed ? malloc_usable_size(q) : 0;
    if (!quiet || !stayed || left != len)
        told(what, was + left, left < len ? len - left : 0);
    else {
        drain();
        check(event_count == 0, "%s, in place: nothing told", what);
    }
    free(q);
    unwatched(was, len);
    return stayed;
}

static void test_sizes(void)
{
    static const size_t sizes[] = {1,    8,    24,    25,     100,   1000,
                                   4096, 8000, 20000, 131072, 200000};
    char what[64];
    void *p;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        snprintf(what, sizeof what, "free of %zu bytes", sizes[i]);
        freed_by(what, malloc(sizes[i]), by_free, 0, 0);
    }
    freed_by("free of calloc", calloc(7, 111), by_free, 0, 0);
    need(posix_memalign(&p, 65536, 3000) == 0, "posix_memalign");
    freed_by("free of posix_memalign", p, by_free, 0, 0);
    need(posix_memalign(&p, 4096, 1 << 20) == 0, "posix_memalign");
    freed_by("free of posix_memalign, 1 MiB", p, by_free, 0, 0);
    free(NULL);
    told("free of NULL", 0, 0);
}

static void test_realloc(bool glibc)
{
    int stayed = 0;

    /* Something behind it, so that it has to move. */
    for (int i = 0; i < 3; i++) {
        void *p = malloc(500), *behind = malloc(500);

        KEEP(behind);
        resized_by("realloc from 500 to 90000", p, by_realloc, 90000, 0,
                   false);
        free(behind);
    }
    void *p = malloc(300), *behind = malloc(300);
    KEEP(behind);
    resized_by("reallocarray", p, by_reallocarray, 70000, 0, false);
    free(behind);
    resized_by("realloc from 100 KiB to 1 MiB", malloc(100 << 10), by_realloc,
               1 << 20, 0, false);
    stayed += resized_by("realloc from 60000 to 20000", malloc(60000),
                         by_realloc, 20000, 0, false);
    stayed += resized_by("realloc from 1 MiB to 300 KiB", malloc(1 << 20),
                         by_realloc, 300 << 10, 0, false);
    resized_by("realloc to 0", malloc(700), by_realloc, 0, 0, false);
    if (glibc)
        check(stayed, "some realloc shrank in place");

    stayed = 0;
    for (size_t n = 1000; n < 100000; n += n / 2)
        stayed += resized_by("realloc that grows", malloc(n), by_realloc,
                             n + 200, 0, true);
    p = malloc(1000);
    stayed += resized_by("realloc to what it has", p, by_realloc,
                         malloc_usable_size(p), 0, true);
    check(stayed, "some realloc stayed in place (%d)", stayed);
    void *q = realloc(NULL, 50);
    KEEP(q);
    told("realloc of NULL", 0, 0);
    free(q);
}

/* Large blocks: the pages go too, and are told of too. */
static void test_large(bool glibc)
{
    lapse_handle own = sub;
    int munmaps = 0;
    uintptr_t p;
    size_t len;

    need(subscribe_free(LAPSE_POLL, LAPSE_MASK_ALL | FREE_MASK, 0, NULL,
                        &sub) == 0, "subscribe");
    p = (uintptr_t)malloc(64 << 20);
    len = watched_len((void *)p);
    free((void *)p);
    told("free of 64 MiB, of all reasons", p, len);
    for (int i = 0; i < event_count; i++)
        munmaps += events[i].reason == LAPSE_REASON_MUNMAP;
    if (glibc)
        check(munmaps == 1, "and its munmap as such");
    lapse_unsubscribe(sub);
    sub = own;
}

static void test_neighbours(void)
{
    char *block[64], *page = NULL, *a = NULL, *b = NULL;
    uintptr_t was;
    size_t len;

    for (int i = 0; i < 64; i++)
        block[i] = malloc(64);
    for (int i = 0; i + 1 < 64 && !page; i++) { /* two of one page */
        a = block[i];
        b = block[i + 1];
        if (((uintptr_t)a & -PAGE) == ((uintptr_t)b & -PAGE))
            page = (char *)((uintptr_t)a & -PAGE);
    }
    need(page, "two blocks in a page");
    len = malloc_usable_size(b);
    was = (uintptr_t)b;
    need(lapse_watch(sub, a, 1) == 0, "watch");
    drain();
    by_free(b, 0, 0);
    told("a neighbour in a watched page", was, len);
    need(lapse_unwatch(sub, a, 1) == 0, "unwatch");
    for (int i = 0; i < 64; i++)
        if ((uintptr_t)block[i] != was)
            free(block[i]);
    told("when the page is not watched any more", 0, 0);
}

/* What only some allocators have. */
static void test_own_functions(void)
{
    static const struct {
        const char *name;
        size_t a, b; /* arguments behind the block of 3000 bytes */
    } frees[] = {
        {"dallocx", 0, 0},          {"sdallocx", 3000, 0},
        {"tc_free", 0, 0},          {"tc_free_sized", 3000, 0},
        {"tc_delete", 0, 0},        {"tc_delete_sized", 3000, 0},
        {"tc_delete_aligned", 16, 0}, {"tc_delete_nothrow", 0, 0},
        {"mi_free", 0, 0},          {"mi_free_size", 3000, 0},
        {"mi_cfree", 0, 0},         {"cfree", 0, 0},
        {"scalable_free", 0, 0},    {"scalable_aligned_free", 0, 0},
        {"__TBB_malloc_safer_free", 0, 0},
    };
    static const char *const reallocs[] = {
        "rallocx",    "tc_realloc",       "mi_realloc",
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
    told("xallocx that shrinks", was + left,
         left < len ? len - left : 0);
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
        {"_ZdlPv", 0, 0},          {"_ZdaPv", 0, 0},
        {"_ZdlPvm", 3000, 0},      {"_ZdaPvm", 3000, 0},
        {"_ZdlPvRKSt9nothrow_t", 0, 0}, {"_ZdaPvRKSt9nothrow_t", 0, 0},
        {"_ZdlPvSt11align_val_t", 64, 0}, {"_ZdaPvSt11align_val_t", 64, 0},
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

        need(f && new && new_aligned, deletes[i].name);
        freed_by(deletes[i].name, aligned ? new_aligned(3000, 64) : new(3000),
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

static void test_masks(void)
{
    lapse_handle own = sub;
    char *p = malloc(1000);

    need(subscribe_free(LAPSE_POLL, 0, 0, NULL, &sub) == 0, "subscribe");
    need(lapse_watch(sub, p, 1000) == 0, "watch");
    KEEP(p);
    free(p);
    told("who did not ask for FREE", 0, 0);
    lapse_unsubscribe(sub);
    need(subscribe_free(LAPSE_POLL, FREE_MASK, LAPSE_ALL, NULL, &sub) == 0,
         "subscribe");
    p = malloc(1000);
    size_t len = malloc_usable_size(p);
    uintptr_t was = (uintptr_t)p;
    drain();
    free(p);
    told("LAPSE_ALL, no watch", was, len);
    lapse_unsubscribe(sub);
    sub = own;
}

static void test_fork(void)
{
    lapse_handle own = sub;
    pid_t pid;

    need(subscribe_free(LAPSE_POLL, FREE_MASK, LAPSE_FORK_KEEP, NULL,
                        &sub) == 0, "subscribe");
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

    need(subscribe_free(LAPSE_POLL, FREE_MASK, 0, NULL, &h) == 0,
         "subscribe");
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

/* The rows of free: one that sums up, and one per library. */
static int entry_rows(bool print)
{
    struct lapse_coverage rows[64];
    int n = lapse_coverage(rows, 64), entries = 0;

    for (int i = 0; i < n && i < 64; i++) {
        if (strcmp(rows[i].path, "free"))
            continue;
        entries += rows[i].mechanism == LAPSE_ENTRY;
        if (print)
            printf("      free, %s: %u %s\n", rows[i].where,
                   rows[i].mechanism, rows[i].detail);
    }
    return entries;
}

static int test_off(void)
{
    lapse_handle h;

    check(subscribe_free(LAPSE_POLL, FREE_MASK, 0, NULL, &h) == -ENOTSUP,
          "not asked for: -ENOTSUP");
    check(subscribe_free(LAPSE_POLL, FREE_MASK | LAPSE_MASK_ALL, 0, NULL,
                         &h) == -ENOTSUP, "with other reasons, too");
    check(entry_rows(true) == 0, "and the coverage table says so");
    return api_end();
}

int main(int argc, char **argv)
{
    static char buffer[4096]; /* printf takes none from the allocator */
    bool glibc;

    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    alarm(120);
    if (SANITIZED) {
        printf("skipped: free is the sanitizer's here\n");
        return 77;
    }
    if (argc > 1 && !strcmp(argv[1], "--off"))
        return test_off();
    glibc = dlsym(RTLD_DEFAULT, "free") ==
            dlsym(dlopen("libc.so.6", RTLD_NOW), "free");
    if (subscribe_free(LAPSE_POLL, FREE_MASK, 0, NULL, &sub)) {
        printf("FAILED FREE is not supported: LAPSE_FREE=1 is needed\n");
        entry_rows(true);
        return 1;
    }
    check(entry_rows(true) >= 2, "the coverage table has the libraries");
    test_sizes();
    test_realloc(glibc);
    test_large(glibc);
    test_neighbours();
    test_own_functions();
    test_xallocx();
    test_delete();
    test_inline();
    test_masks();
    test_fork();
    test_threads(argc > 1 ? atof(argv[1]) : 1);
    lapse_unsubscribe(sub);
    return api_end();
}
