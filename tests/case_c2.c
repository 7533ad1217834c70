/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * C2: mappings that are replaced rather than unmapped, and System V segments.
 * Each row registers a range, replaces some of it and writes new data there:
 * a device has to see it, and what is told has to be what went.
 * Usage: case_c2 [--expect-fault] [--callback]
 */
#include <sys/resource.h>
#include <sys/shm.h>

#include "case.h"
#include "case_uring.h"

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define LEN (8 * PAGE) /* what is registered */
#define HUGE (2ul << 20)

static int odd, whole; /* segments: 3 pages less some bytes; 8 pages */

/* What a row released by its call. */
struct span {
    char *start;
    size_t len;
};

static struct span map_over(char *p)
{
    need(mmap(p + 2 * PAGE, 2 * PAGE, RW, ANON | MAP_FIXED, -1, 0) ==
             p + 2 * PAGE,
         "MAP_FIXED");
    return (struct span){p + 2 * PAGE, 2 * PAGE};
}

static struct span map_over_all(char *p)
{
    need(mmap(p, LEN, RW, ANON | MAP_FIXED, -1, 0) == p, "MAP_FIXED");
    return (struct span){p, LEN};
}

/* prepare() left nothing mapped behind the range */
static struct span map_half_over_nothing(char *p)
{
    need(mmap(p + LEN / 2, LEN, RW, ANON | MAP_FIXED, -1, 0) == p + LEN / 2,
         "MAP_FIXED");
    return (struct span){p + LEN / 2, LEN};
}

static struct span attach_over(char *p)
{
    need(shmat(whole, p, SHM_REMAP) == p, "SHM_REMAP");
    return (struct span){p, LEN};
}

static struct span attach_odd_over(char *p)
{
    need(shmat(odd, p + 2 * PAGE, SHM_REMAP) == p + 2 * PAGE, "SHM_REMAP");
    return (struct span){p + 2 * PAGE, 3 * PAGE};
}

/* Rounded down to SHMLBA, a page; the end moves with it. */
static struct span attach_rounded_over(char *p)
{
    need(shmat(odd, p + 2 * PAGE + 4000, SHM_REMAP | SHM_RND) == p + 2 * PAGE,
         "SHM_REMAP | SHM_RND");
    return (struct span){p + 2 * PAGE, 3 * PAGE};
}

static struct span detach(char *p)
{
    need(shmdt(p) == 0, "shmdt");
    need(shmat(odd, p, 0) == p, "another segment at that address");
    need(mmap(p + 3 * PAGE, 5 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) ==
             p + 3 * PAGE,
         "pages behind it");
    return (struct span){p, LEN};
}

/* The hook cannot open anything: it may say more, never less. */
static struct span detach_without_descriptors(char *p)
{
    struct rlimit none, was;

    need(getrlimit(RLIMIT_NOFILE, &was) == 0, "getrlimit");
    none = was;
    none.rlim_cur = 0;
    need(setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit");
    detach(p);
    need(setrlimit(RLIMIT_NOFILE, &was) == 0, "setrlimit");
    return (struct span){p, 0};
}

static char *map(bool segment)
{
    char *p =
        segment ? shmat(whole, NULL, 0) : mmap(NULL, 4 * LEN, RW, ANON, -1, 0);

    need(p != (char *)-1, "memory");
    if (!segment)
        munmap(p + LEN, 3 * LEN);
    return p;
}

/* A segment that is attached where a huge page may begin may be of huge pages:
 * more is told then. */
static bool is_huge_place(char *p)
{
    return (uintptr_t)p % HUGE == 0 || (uintptr_t)(p + 2 * PAGE) % HUGE == 0;
}

static char *prepare(bool segment)
{
    char *p = map(segment);

    if (is_huge_place(p))
        p = map(segment);
    memset(p, 'o', LEN);
    return p;
}

static const struct row {
    const char *name;
    struct span (*replace)(char *p);
    bool segment; /* what is registered is one */
} rows[] = {
    {"MAP_FIXED over the middle", map_over, false},
    {"MAP_FIXED over all", map_over_all, false},
    {"MAP_FIXED, half over nothing", map_half_over_nothing, false},
    {"SHM_REMAP", attach_over, false},
    {"SHM_REMAP, size of no whole pages", attach_odd_over, false},
    {"SHM_REMAP, SHM_RND", attach_rounded_over, false},
    {"shmdt, another segment", detach, true},
    {"shmdt, no descriptor left", detach_without_descriptors, true},
    {"MAP_FIXED over a segment", map_over, true},
};

static void run(const struct row *row)
{
    char *p = prepare(row->segment);
    struct span gone;
    size_t stale;

    need(cache_stale(p, LEN) == 0, "a fresh registration");
    cache_forget();
    gone = row->replace(p);
    if (gone.len)
        told(cache_covered(gone.start, gone.len), "C2 %s: covered", row->name);
    memset(p, 'n', LEN);
    stale = cache_stale(p, LEN);
    must(stale == 0, "C2 %s: %zu of %lu pages stale", row->name, stale,
         LEN / PAGE);
}

/* Nothing goes: nothing is told, and the registration lives on. */
static void test_no_replace(void)
{
    char *p = prepare(false);
    unsigned long misses;

    cache_lookup(p, LEN);
    misses = cache_misses;
    cache_forget();
    check(mmap(p, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED,
          "C2: MAP_FIXED_NOREPLACE fails");
    check(cache_told() == 0, "C2: and gives no event");
    check(cache_stale(p, LEN) == 0 && cache_misses == misses,
          "C2: and leaves the registration");
}

int main(int argc, char **argv)
{
    (void)argc;
    argv = case_begin_preloaded(argv);
    odd = shmget(IPC_PRIVATE, 2 * PAGE + 100, IPC_CREAT | 0600);
    whole = shmget(IPC_PRIVATE, LEN, IPC_CREAT | 0600);
    need(odd >= 0 && whole >= 0, "shmget");
    cache_start(argv[1] ? LAPSE_CALLBACK : LAPSE_POLL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run(&rows[i]);
    test_no_replace();
    cache_stop();
    shmctl(odd, IPC_RMID, NULL);
    shmctl(whole, IPC_RMID, NULL);
    return api_end();
}
