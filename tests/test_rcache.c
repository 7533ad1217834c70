/* SPDX-License-Identifier: BSD-3-Clause */
/* The registration cache by its API, with releases made by hand. */
#include "tests/rcache_unit.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(rcache, .init = unit_start, .timeout = 60);

Test(rcache, second_get_is_a_hit)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);
    lapse_region *a = got(c, 1, 2, 1), *b = got(c, 1, 2, 1);
    struct books_memory *m = lapse_region_memory(a);

    cr_expect_eq(a, b);
    cr_expect_eq(books.asked, 1);
    cr_expect_eq(m->magic, BOOKS_MAGIC);
    cr_expect_eq((uintptr_t)m % 16, 0);
    cr_expect_eq(lapse_region_addr(a), unit_at(1));
    cr_expect_eq(lapse_region_len(a), PAGES(2));
    cr_expect_eq(lapse_rcache_destroy(c), -EBUSY);
    lapse_rcache_put(c, a);
    cr_expect_eq(books.deregistered, 0);
    lapse_rcache_put(c, b);
    cr_expect_eq(books.deregistered, 1);
    destroy(c);
}

Test(rcache, refuses_what_it_cannot_do)
{
    struct lapse_rcache_ops ops = {.size = sizeof(ops)};
    lapse_rcache *c;
    lapse_region *r;

    cr_expect_eq(lapse_rcache_create(NULL, NULL, &c), -EINVAL);
    cr_expect_eq(lapse_rcache_create(&ops, NULL, &c), -EINVAL);
    c = books_cache(&books, NO_TICK);
    cr_expect_eq(lapse_rcache_get(c, NULL, 1, 1, &r), -EINVAL);
    cr_expect_eq(lapse_rcache_get(c, unit_at(1), 0, 1, &r), -EINVAL);
    cr_expect_eq(lapse_rcache_get(c, unit_at(1), SIZE_MAX, 1, &r), -EINVAL);
    cr_expect_eq(lapse_rcache_get(c, unit_at(1), 1, 0x100, &r), -EINVAL);
    cr_expect_eq(lapse_rcache_get(c, (void *)-4096, 4096, 1, &r), -EINVAL);
    got(c, 1, 1, 1);
    cr_expect_eq(lapse_rcache_get(c, unit_at(1), 0, 1, &r), -EINVAL);
    cr_expect_eq(lapse_rcache_get(c, unit_at(1), SIZE_MAX, 1, &r), -EINVAL);
    cr_expect_eq(lapse_rcache_get(c, (char *)unit_at(1) + 64, SIZE_MAX, 1, &r),
                 -EINVAL);
    cr_expect_eq(books.asked, 1);
    cr_expect_eq(stats_of(c).failed, 8);
}

static int refuse(void *addr, size_t len, unsigned access, void *memory,
                  void *arg)
{
    (void)addr, (void)len, (void)access, (void)memory, (void)arg;
    return -EIO;
}

static void nothing(void *addr, size_t len, void *memory, void *arg)
{
    (void)addr, (void)len, (void)memory, (void)arg;
}

Test(rcache, aligns_to_powers_of_two)
{
    struct lapse_rcache_ops ops = {.size = sizeof(ops),
                                   .register_region = refuse,
                                   .deregister_region = nothing};
    struct lapse_rcache_limits limits = {.size = sizeof(limits)};
    lapse_rcache *c;

    for (size_t align = 0; align < 10000; align++) {
        bool good = !(align & (align - 1));

        if (align > 600 && !good && align % 500)
            continue;
        limits.align = align;
        cr_assert_eq(lapse_rcache_create(&ops, &limits, &c),
                     good ? 0 : -EINVAL, "%zu", align);
        if (good)
            destroy(c);
    }
}

static const struct {
    const char *what;
    size_t page, pages;
    unsigned access;
    bool hit;
} lookups[] = {
    {"the same", 100, 10, 1, true},
    {"its first page", 100, 1, 1, true},
    {"its last page", 109, 1, 1, true},
    {"inside", 103, 4, 1, true},
    {"other rights", 100, 10, 2, false},
    {"more rights", 100, 10, 3, false},
    {"one page more", 100, 11, 1, false},
    {"one page before", 99, 1, 1, false},
    {"from before", 99, 3, 1, false},
    {"the page behind", 110, 1, 1, false},
    {"the same page of another 2 MiB", 100 + 512, 1, 1, false},
    {"the same page 64 GiB on", 100 + (1 << 24), 1, 1, false},
};

Test(rcache, finds_what_covers_with_the_rights)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);

    for (size_t i = 0; i < sizeof(lookups) / sizeof(*lookups); i++) {
        uint64_t hits;

        lapse_rcache_put(c, got(c, 100, 10, 1));
        hits = stats_of(c).hits;
        lapse_rcache_put(c, got(c, lookups[i].page, lookups[i].pages,
                                lookups[i].access));
        cr_expect_eq(stats_of(c).hits - hits, lookups[i].hit, "%s",
                     lookups[i].what);
        lapse_rcache_flush(c);
    }
    destroy(c);
}

/* What the index keeps of an address is short of these bits. */
Test(rcache, the_same_address_with_other_top_bits_is_refused)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);
    lapse_region *r;

    touch(c, unit_at(1), PAGES(2));
    for (int several = 0; several < 2; several++) {
        for (int bit = 47; bit < 64; bit++) {
            uintptr_t at = (uintptr_t)unit_at(1) ^ (uintptr_t)1 << bit;

            cr_expect_eq(lapse_rcache_get(c, (void *)at, 1, 1, &r), -EINVAL,
                         "bit %d", bit);
        }
        touch(c, unit_at(1), PAGES(3)); /* now it is a list */
    }
    cr_expect_eq(books.asked, 2);
    destroy(c);
}

Test(rcache, bytes_are_rounded_to_pages)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);

    touch(c, (char *)unit_at(5) + 4095, 2);
    touch(c, unit_at(5), PAGES(2));
    cr_expect_eq(books.asked, 1);
    destroy(c);
}

/* Sizes at which the index changes its ways. */
static const size_t sizes[] = {1,   254, 255,  256,    257,    511,
                               512, 513, 1024, 262143, 262144, 1 << 20};

Test(rcache, regions_of_all_sizes)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        for (size_t at = 1000; at < 1030; at += 24) { /* 1024 is aligned */
            size_t n = sizes[i];
            int asked = books.asked;

            lapse_rcache_put(c, got(c, at, n, 1));
            lapse_rcache_put(c, got(c, at, n, 1));
            lapse_rcache_put(c, got(c, at + n - 1, 1, 1));
            lapse_rcache_put(c, got(c, at + n / 2, n - n / 2, 1));
            cr_expect_eq(books.asked - asked, 1, "%zu pages", n);
            lapse_rcache_put(c, got(c, at + n / 2, n - n / 2 + 1, 1));
            cr_expect_eq(books.asked - asked, 2, "%zu pages", n);
            cr_expect_eq(lapse_rcache_invalidate(c, unit_at(at + n - 1), 1),
                         2);
            cr_expect_eq(stats_of(c).regions, 0);
        }
    destroy(c);
}

Test(rcache, a_release_takes_what_overlaps_and_nothing_else)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);

    touch(c, unit_at(10), PAGES(4));
    touch(c, unit_at(14), PAGES(4));
    touch(c, unit_at(8), PAGES(20)); /* around both */
    touch(c, unit_at(40), PAGES(1));
    lapse_publish(unit_at(13), UNIT_PAGE);
    touch(c, unit_at(40), PAGES(1));
    cr_expect_eq(books.deregistered, 2);
    touch(c, unit_at(14), PAGES(4));
    cr_expect_eq(books.asked, 4);
    touch(c, unit_at(10), PAGES(4));
    cr_expect_eq(books.asked, 5);
    cr_expect_eq(stats_of(c).invalidated, 2);
    destroy(c);
}

Test(rcache, overflow_takes_everything)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);

    for (size_t i = 0; i < 2 * UNIT_RECORDS; i++)
        touch(c, unit_at(2 * i), UNIT_PAGE);
    for (size_t i = 0; i < 2 * UNIT_RECORDS; i++)
        lapse_publish(unit_at(2 * i), UNIT_PAGE);
    touch(c, unit_at(5000), 1);
    cr_expect_eq(books.deregistered, 2 * UNIT_RECORDS);
    destroy(c);
}

Test(rcache, in_use_it_is_out_of_lookups_and_goes_at_the_last_put)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);
    lapse_region *a = got(c, 1, 4, 1), *b = got(c, 2, 1, 1), *n;

    lapse_publish(unit_at(4), UNIT_PAGE);
    n = got(c, 1, 1, 1);
    cr_expect_neq(n, a);
    cr_expect_eq(stats_of(c).lapsed, 1);
    lapse_rcache_put(c, a);
    cr_expect_eq(books.deregistered, 0);
    lapse_rcache_put(c, b);
    cr_expect_eq(books.deregistered, 1);
    cr_expect_eq(stats_of(c).lapsed, 0);
    lapse_rcache_put(c, n);
    cr_expect_eq(books.deregistered, 1);
    destroy(c);
}

static void *put_main(void *region)
{
    lapse_rcache_put(books.cache, region);
    return NULL;
}

Test(rcache, another_thread_may_put)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);
    lapse_region *a = got(c, 1, 1, 1), *b = got(c, 1, 1, 1);
    pthread_t t;

    pthread_create(&t, NULL, put_main, a);
    pthread_join(t, NULL);
    lapse_rcache_invalidate(c, unit_at(1), 1);
    cr_expect_eq(books.deregistered, 0);
    pthread_create(&t, NULL, put_main, b);
    pthread_join(t, NULL);
    cr_expect_eq(books.deregistered, 1);
    destroy(c);
}

Test(rcache, threads_that_end_leave_no_counters)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);

    for (int i = 0; i < 100; i++) {
        pthread_t t;

        pthread_create(&t, NULL, put_main, got(c, 1, 1, 1));
        pthread_join(t, NULL);
    }
    cr_expect(stats_of(c).threads <= 4);
    destroy(c);
}

Test(rcache, many_caches_by_turns)
{
    struct books b[6] = {0};

    for (int i = 0; i < 6; i++)
        books_cache(&b[i], NO_TICK);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 6; i++)
            cr_expect_eq(touch(b[i].cache, unit_at(1), 1), 0);
    for (int i = 0; i < 6; i++) {
        cr_expect_eq(b[i].asked, 1);
        cr_expect_eq(stats_of(b[i].cache).threads, 1);
        cr_expect_eq(lapse_rcache_destroy(b[i].cache), 0);
    }
}

Test(rcache, an_idle_process_gives_memory_back)
{
    lapse_rcache *c = books_cache(
        &books, (struct lapse_rcache_limits){.idle_ms = 20});

    touch(c, unit_at(1), 1);
    lapse_publish(unit_at(1), 1);
    cr_expect_eq(unit_await(&books.deregistered, 1), 1);
    unit_sleep_ms(50); /* it sleeps for good now, and must wake again */
    touch(c, unit_at(1), 1);
    lapse_publish(unit_at(1), 1);
    cr_expect_eq(unit_await(&books.deregistered, 2), 2);
    destroy(c);
}

Test(rcache, many_regions_over_one_page)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);

    for (size_t n = 1; n <= 100; n++) /* each is longer: a miss */
        touch(c, unit_at(1), PAGES(n));
    cr_expect_eq(books.asked, 100);
    touch(c, unit_at(1), PAGES(100));
    touch(c, unit_at(100), PAGES(1));
    touch(c, unit_at(3), PAGES(3));
    cr_expect_eq(books.asked, 100);
    cr_expect_eq(lapse_rcache_invalidate(c, unit_at(50), 1), 51);
    touch(c, unit_at(1), PAGES(49));
    cr_expect_eq(books.asked, 100);
    destroy(c);
}

Test(rcache, a_child_has_nothing_and_calls_nobody)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);
    lapse_region *held = got(c, 1, 1, 1), *r;
    int status;
    pid_t pid;

    lapse_rcache_invalidate(c, unit_at(1), 1);
    touch(c, unit_at(3), 1);
    pid = fork();
    if (!pid) {
        int bad = lapse_rcache_get(c, unit_at(3), 1, 1, &r) != -ESTALE;

        lapse_rcache_put(c, held);
        bad |= lapse_rcache_flush(c) != -ESTALE;
        bad |= lapse_rcache_destroy(c) != 0;
        bad |= books.deregistered != 0;
        memset(&books, 0, sizeof(books));
        c = books_cache(&books, NO_TICK); /* one of its own */
        bad |= touch(c, unit_at(3), 1) || touch(c, unit_at(3), 1);
        lapse_publish(unit_at(3), 1);
        bad |= touch(c, unit_at(3), 1) || books.asked != 2;
        bad |= lapse_rcache_destroy(c) != 0;
        _exit(bad);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect_eq(status, 0);
    cr_expect_eq(touch(c, unit_at(3), 1), 0);
    lapse_rcache_put(c, held);
    cr_expect_eq(books.asked, 2);
    destroy(c);
}

/* Not by fork(), whose handlers tell lapse. */
static pid_t raw_fork(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static int status_of(pid_t pid)
{
    int status = -1;

    waitpid(pid, &status, 0);
    return status;
}

static int wrong_in_child(lapse_rcache *c, lapse_region *held)
{
    int before = books.deregistered;
    lapse_region *r;
    int bad = lapse_rcache_get(c, unit_at(3), 1, 1, &r) != -ESTALE;

    bad |= lapse_rcache_get(c, unit_at(5), 1, 1, &r) != -ESTALE;
    lapse_rcache_put(c, held);
    bad |= lapse_rcache_flush(c) != -ESTALE;
    bad |= lapse_rcache_destroy(c) != 0;
    return bad | (books.deregistered != before);
}

Test(rcache, a_child_that_nobody_told_of_has_nothing)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);
    lapse_region *held = got(c, 1, 1, 1);
    pid_t pid;

    touch(c, unit_at(3), 1);
    pid = raw_fork();
    if (!pid)
        _exit(wrong_in_child(c, held));
    cr_expect_eq(status_of(pid), 0);
    lapse_rcache_put(c, held);
    destroy(c);
}

/* The first process of a container makes one of its own. */
static int fork_with_the_same_pid(void)
{
    lapse_rcache *c = books_cache(&books, NO_TICK);
    lapse_region *held = got(c, 1, 1, 1);
    pid_t parent = getpid(), pid;

    touch(c, unit_at(3), 1);
    if (unshare(CLONE_NEWPID))
        return 2;
    pid = fork();
    if (!pid)
        _exit(getpid() != parent || wrong_in_child(c, held));
    return status_of(pid) != 0;
}

Test(rcache, a_child_with_the_same_pid_has_nothing)
{
    pid_t pid;

    if (unshare(CLONE_NEWPID) && unshare(CLONE_NEWUSER | CLONE_NEWPID))
        cr_skip("namespaces are not allowed");
    pid = fork();
    if (!pid)
        _exit(fork_with_the_same_pid());
    cr_expect_eq(status_of(pid), 0);
}
