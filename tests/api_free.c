/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * FREE, by the byte: free and realloc of the allocator that this process has,
 * whichever that is. Needs LAPSE_FREE=1.
 * Usage: api_free    or, without LAPSE_FREE: api_free --off
 */
#include <dlfcn.h>

#include "api_free.h"

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

static void test_realloc(bool glibc)
{
    int stayed = 0;

    /* Something behind it, so that it has to move. */
    for (int i = 0; i < 3; i++) {
        void *p = malloc(500), *behind = malloc(500);

        KEEP(behind);
        resized_by("realloc from 500 to 90000", p, by_realloc, 90000, 0, false);
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
                        &sub) == 0,
         "subscribe");
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

/* The rows of free: one that sums up, and one per library. */
static int entry_rows(void)
{
    struct lapse_coverage rows[64];
    int n = lapse_coverage(rows, 64), entries = 0;

    for (int i = 0; i < n && i < 64; i++) {
        if (strcmp(rows[i].path, "free"))
            continue;
        entries += rows[i].mechanism == LAPSE_ENTRY;
        printf("      free, %s: %u %s\n", rows[i].where, rows[i].mechanism,
               rows[i].detail);
    }
    return entries;
}

static int test_off(void)
{
    lapse_handle h;

    check(subscribe_free(LAPSE_POLL, FREE_MASK, 0, NULL, &h) == -ENOTSUP,
          "not asked for: -ENOTSUP");
    check(subscribe_free(LAPSE_POLL, FREE_MASK | LAPSE_MASK_ALL, 0, NULL, &h) ==
              -ENOTSUP,
          "with other reasons, too");
    check(entry_rows() == 0, "and the coverage table says so");
    return api_end();
}

int main(int argc, char **argv)
{
    bool glibc;

    if (SANITIZED) {
        printf("skipped: free is the sanitizer's here\n");
        return 77;
    }
    if (argc > 1 && !strcmp(argv[1], "--off"))
        return test_off();
    glibc = dlsym(RTLD_DEFAULT, "free") ==
            dlsym(dlopen("libc.so.6", RTLD_NOW), "free");
    free_begin();
    check(entry_rows() >= 2, "the coverage table has the libraries");
    test_sizes();
    test_realloc(glibc);
    test_large(glibc);
    test_neighbours();
    test_masks();
    lapse_unsubscribe(sub);
    return api_end();
}
