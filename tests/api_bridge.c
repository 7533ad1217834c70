/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bridges/jemalloc.c: what is watched stays when it is freed, and goes when it
 * is not watched any more.
 */
#include "bridge.h"

#define ARENA(n) (((n) + 1) << 20 | 0x100) /* MALLOCX_ARENA, TCACHE_NONE */

static int (*mallctl)(const char *, void *, size_t *, void *, size_t);
static void *(*mallocx)(size_t, int);
static void (*dallocx)(void *, int);

static unsigned arena_new(void)
{
    unsigned n;
    size_t len = sizeof n;

    need(mallctl("arenas.create", &n, &len, NULL, 0) == 0, "arenas.create");
    return n;
}

static void arena_do(const char *what, unsigned n)
{
    char name[64];

    snprintf(name, sizeof name, "arena.%u.%s", n, what);
    need(mallctl(name, NULL, NULL, NULL, 0) == 0, name);
}

/* Purges something else too: hooks run only where there is dirt. */
static void purge_dirty(unsigned n)
{
    char *p = mallocx(256 * 1024, ARENA(n));

    memset(p, 1, 256 * 1024);
    dallocx(p, ARENA(n));
    arena_do("purge", n);
}

/* Polls all there is: did something overlap? */
static bool told(lapse_handle s, const void *p, size_t len)
{
    struct lapse_event e[16];
    bool hit = false;
    int n;

    while (lapse_pending(s) && (n = lapse_poll(s, e, 16)) > 0)
        for (int i = 0; i < n; i++)
            hit |= event_overlaps(&e[i], p, len);
    return hit;
}

static char *filled(unsigned arena, size_t len)
{
    char *p = mallocx(len, ARENA(arena));

    need(p != NULL, "mallocx");
    memset(p, 0x5a, len);
    return p;
}

/* The control: an arena made after the bridge came has it not. */
static void case_without(unsigned n, lapse_handle s)
{
    char *p = filled(n, MIB);

    lapse_watch(s, p, MIB);
    dallocx(p, ARENA(n));
    arena_do("purge", n);
    check(told(s, p, MIB), "an arena without the bridge: told");
    check(resident(p, MIB) < MIB, "and its pages are gone");
    lapse_unwatch(s, p, MIB);
}

static void case_kept(unsigned n, lapse_handle s)
{
    char *p = filled(n, MIB), *q;
    uint64_t first = pfn(p), last = pfn(p + MIB - 1);
    struct lapse_jemalloc_stats was = stats();

    lapse_watch(s, p, MIB);
    dallocx(p, ARENA(n));
    arena_do("purge", n);
    check(!told(s, p, MIB), "watched, freed and purged: nobody is told");
    check(pfn(p) == first && pfn(p + MIB - 1) == last,
          "its pages are those they were");
    check(stats().refused > was.refused && stats().kept_bytes >= MIB,
          "counted: %zu bytes kept", (size_t)stats().kept_bytes);
    arena_do("purge", n);
    purge_dirty(n);
    check(lapse_jemalloc_purge() == 0 && pfn(p) == first,
          "nor do they go at the next purge");
    q = mallocx(MIB, ARENA(n) | 0x40); /* MALLOCX_ZERO */
    check((uintptr_t)q / PAGE == (uintptr_t)p / PAGE && pfn(q) == first,
          "the next malloc gets them");
    check(all(q, MIB, 0), "and calloc finds zeros");
    check(stats().kept_ranges == was.kept_ranges, "nothing is kept any more");
    dallocx(q, ARENA(n));
    arena_do("purge", n);
    lapse_unwatch(s, p, MIB);
    check(pfn(p) == first, "kept once more");
    purge_dirty(n);
    check(!pfn(p) && !pfn(p + MIB / 2) && !pfn(p + MIB - 1),
          "unwatched: gone at the next purge");
    check(stats().kept_bytes == was.kept_bytes, "and not counted");
    q = mallocx(MIB, ARENA(n));
    memset(q, 1, MIB);
    check(all(q, MIB, 1), "usable after that");
    dallocx(q, ARENA(n));
}

static void case_purge_call(unsigned n, lapse_handle s)
{
    char *p = filled(n, 2 * MIB);
    ssize_t bytes;

    lapse_watch(s, p, 2 * MIB);
    dallocx(p, ARENA(n));
    arena_do("purge", n);
    lapse_unwatch(s, p, 2 * MIB);
    check(resident(p, 2 * MIB) == 2 * MIB, "unwatched, nobody purges: there");
    bytes = lapse_jemalloc_purge();
    check(bytes >= (ssize_t)(2 * MIB) && !resident(p, 2 * MIB),
          "lapse_jemalloc_purge gives back %zd bytes", bytes);
    check(lapse_jemalloc_purge() == 0, "once");
}

/* One page of a large extent: the rest goes. */
static void case_part(unsigned n, lapse_handle s)
{
    char *p = filled(n, 6 * MIB), *hot = p + 3 * MIB;
    uint64_t was = pfn(hot);
    size_t left;

    lapse_watch(s, hot, 1);
    dallocx(p, ARENA(n));
    arena_do("purge", n);
    left = resident(p, 6 * MIB);
    check(pfn(hot) == was && !told(s, hot, 1), "one page watched of 6 MiB");
    check(left <= 128 * 1024, "%zu bytes stay with it", left);
    p = mallocx(6 * MIB, ARENA(n) | 0x40);
    check(all(p, 6 * MIB, 0), "the whole is zeros when used again");
    lapse_unwatch(s, hot, 1);
    dallocx(p, ARENA(n));
    arena_do("purge", n);
}

/* Kept as a whole, used again in parts. */
static void case_split(unsigned n, lapse_handle s)
{
    enum { N = 24 };
    char *p = filled(n, 6 * MIB), *q[N];
    char *half = (char *)((uintptr_t)(p + 3 * MIB) & ~(PAGE - 1));
    bool zeros = true, good = true;

    lapse_watch(s, p, 6 * MIB);
    dallocx(p, ARENA(n));
    arena_do("purge", n);
    lapse_unwatch(s, half, (size_t)(p + 6 * MIB - half));
    for (int i = 0; i < N; i++) {
        q[i] = mallocx(256 * 1024 - 8192, ARENA(n) | 0x40);
        zeros &= all(q[i], 256 * 1024 - 8192, 0);
        memset(q[i], i, 256 * 1024 - 8192);
        lapse_jemalloc_purge(); /* must not touch what is in use */
        if (i % 3 == 2) {
            dallocx(q[i - 1], ARENA(n));
            q[i - 1] = NULL;
            arena_do("purge", n);
        }
    }
    lapse_unwatch(s, p, (size_t)(half - p));
    lapse_jemalloc_purge();
    for (int i = 0; i < N; i++)
        if (q[i]) {
            good &= all(q[i], 256 * 1024 - 8192, (char)i);
            dallocx(q[i], ARENA(n));
        }
    check(zeros, "parts of a kept range read as zeros");
    check(good, "and are never given back under their owner");
    arena_do("purge", n);
    told(s, p, 1);
}

static void case_destroy(unsigned n, lapse_handle s)
{
    char *p = filled(n, MIB);

    lapse_watch(s, p, MIB);
    dallocx(p, ARENA(n));
    arena_do("purge", n);
    check(stats().kept_bytes >= MIB, "kept before its arena is destroyed");
    arena_do("destroy", n);
    check(told(s, p, MIB) && stats().kept_bytes == 0,
          "destroying cannot be refused: told, and nothing is kept");
    lapse_unwatch(s, p, MIB);
}

/* Hooks of the program's own, there before the bridge. */
struct own {
    void *hook[9];
};
static struct own *defaults, own;
static atomic_int own_decommits, own_purges, own_commits;
static atomic_bool own_decommitting;

typedef bool range_hook(struct own *, void *, size_t, size_t, size_t,
                        unsigned);

static bool own_decommit(struct own *h, void *addr, size_t size, size_t offset,
                         size_t length, unsigned n)
{
    (void)size, (void)n;
    if (h != &own || !own_decommitting)
        return true;
    atomic_fetch_add(&own_decommits, 1);
    return madvise((char *)addr + offset, length, MADV_DONTNEED) != 0;
}

static bool own_commit(struct own *h, void *addr, size_t size, size_t offset,
                       size_t length, unsigned n)
{
    (void)addr, (void)size, (void)offset, (void)length, (void)n;
    atomic_fetch_add(&own_commits, 1);
    return h != &own;
}

static bool own_purge(struct own *h, void *addr, size_t size, size_t offset,
                      size_t length, unsigned n)
{
    atomic_fetch_add(&own_purges, 1);
    return h != &own || ((range_hook *)defaults->hook[6])(
                            defaults, addr, size, offset, length, n);
}

static void set_own_hooks(unsigned n)
{
    struct own *new = &own;
    size_t len = sizeof defaults;
    char name[64];

    snprintf(name, sizeof name, "arena.%u.extent_hooks", n);
    need(mallctl(name, &defaults, &len, NULL, 0) == 0, name);
    own = *defaults;
    own.hook[3] = (void *)own_commit;
    own.hook[4] = (void *)own_decommit;
    own.hook[6] = (void *)own_purge;
    need(mallctl(name, NULL, NULL, &new, sizeof new) == 0, name);
}

static void case_chain(lapse_handle s)
{
    unsigned n = arena_new();
    struct lapse_jemalloc_stats was = stats();
    char *p, *q;

    set_own_hooks(n);
    check(lapse_jemalloc_install() == 0 && stats().installed == was.installed + 1,
          "installed before hooks of the program's own");
    check(lapse_jemalloc_install() == 0 && stats().installed == was.installed + 1,
          "installed twice: once");
    p = filled(n, MIB);
    /* To the end of its extent, which has a page more than it: jemalloc puts
     * it at any cache line of the first, one time of 64 at the first. */
    lapse_watch(s, p, MIB + 1);
    dallocx(p, ARENA(n));
    arena_do("purge", n);
    check(own_purges == 0 && !told(s, p, MIB), "refused: they are not asked");
    lapse_unwatch(s, p, MIB + 1);
    lapse_jemalloc_purge();
    check(own_purges == 1 && !pfn(p), "given back: through them");
    q = filled(n, 2 * MIB);
    own_decommitting = true;
    dallocx(q, ARENA(n));
    arena_do("purge", n);
    check(own_decommits > 0, "not watched: they decommit");
    q = mallocx(3 * MIB, ARENA(n) | 0x40);
    check(all(q, 3 * MIB, 0), "theirs and ours are used again: zeros");
    memset(q, 7, 3 * MIB);
    lapse_jemalloc_purge();
    check(all(q, 3 * MIB, 7), "and stay what they are");
    dallocx(q, ARENA(n));
}

/* Two extents side by side, one decommitted by the program's own hooks and one
 * kept, are one for jemalloc. */
static void case_mixed(lapse_handle s)
{
    unsigned n = arena_new();
    char *p, *q;

    set_own_hooks(n);
    lapse_jemalloc_install();
    own_decommitting = true;
    dallocx(filled(n, 12 * MIB), ARENA(n));
    p = filled(n, MIB);
    q = filled(n, 5 * MIB);
    lapse_watch(s, p, MIB);
    dallocx(p, ARENA(n));
    dallocx(q, ARENA(n));
    check(resident(p, MIB) == MIB && resident(q, 5 * MIB) < MIB,
          "one is kept, the other decommitted");
    lapse_unwatch(s, p, MIB);
    own_commits = 0;
    p = mallocx(6 * MIB, ARENA(n) | 0x40);
    check(all(p, 6 * MIB, 0) && own_commits > 0,
          "used again as one: zeros, %d commits of theirs", own_commits);
    memset(p, 9, 6 * MIB);
    lapse_jemalloc_purge();
    check(all(p, 6 * MIB, 9), "and stays what it is");
    dallocx(p, ARENA(n));
}

/* More ranges than can be kept: those beyond go, and are told of. */
static void case_full(unsigned n, lapse_handle s)
{
    enum { N = 5000, LEN = 16 * 1024 };
    static char *p[2 * N];
    struct lapse_jemalloc_stats was = stats(), now;
    size_t left = 0;
    bool gone;

    for (int i = 0; i < 2 * N; i++)
        p[i] = filled(n, LEN);
    for (int i = 0; i < 2 * N; i += 2) {
        lapse_watch(s, p[i], LEN);
        dallocx(p[i], ARENA(n));
    }
    arena_do("purge", n);
    now = stats();
    for (int i = 0; i < 2 * N; i += 2)
        left += pfn(p[i]) != 0;
    gone = told(s, (void *)PAGE, (1ul << 47) - 2 * PAGE);
    check(now.kept_ranges <= 4096 && now.unkept > was.unkept && gone,
          "%zu ranges watched: %zu kept, %zu not, and of those it is told",
          (size_t)N, (size_t)now.kept_ranges,
          (size_t)(now.unkept - was.unkept));
    for (int i = 0; i < 2 * N; i += 2)
        lapse_unwatch(s, p[i], LEN);
    lapse_jemalloc_purge();
    check(stats().kept_ranges == 0 && left > 3000,
          "%zu pages stayed; unwatched: none", left);
    for (int i = 1; i < 2 * N; i += 2)
        dallocx(p[i], ARENA(n));
    arena_do("purge", n);
}

static void case_oversize(lapse_handle s)
{
    char *p = malloc(16 * MIB);
    void *volatile block = p; /* looked at when freed: not by the compiler */

    memset(p, 1, 16 * MIB);
    lapse_watch(s, p, 16 * MIB);
    free(block);
    check(!told(s, p, 16 * MIB) && resident(p, 16 * MIB) == 16 * MIB,
          "a block of the oversize arena is kept");
    lapse_unwatch(s, p, 16 * MIB);
    lapse_jemalloc_purge();
    check(resident(p, 16 * MIB) < MIB, "and given back");
}

static void cases(void)
{
    lapse_handle s = subscribe(LAPSE_POLL, 0, NULL, NULL);
    unsigned n;

    *(void **)&mallctl = dlsym(RTLD_DEFAULT, "mallctl");
    *(void **)&mallocx = dlsym(RTLD_DEFAULT, "mallocx");
    *(void **)&dallocx = dlsym(RTLD_DEFAULT, "dallocx");
    check(stats().installed > 0, "installed by itself in %d arenas",
          (int)stats().installed);
    case_oversize(s);
    n = arena_new();
    case_without(n, s);
    check(lapse_jemalloc_install() == 0, "installed in a new arena");
    case_kept(n, s);
    case_purge_call(n, s);
    case_part(n, s);
    case_split(n, s);
    case_full(n, s);
    case_destroy(n, s);
    case_chain(s);
    case_mixed(s);
}

static void without_jemalloc(void)
{
    check(lapse_jemalloc_install() == -ENOTSUP && !dlerror(),
          "no jemalloc: -ENOTSUP, and nothing in dlerror()");
    check(lapse_jemalloc_purge() == 0 && stats().installed == 0,
          "and nothing to do");
}

int main(int argc, char **argv)
{
    if (argc == 1 && !dlsym(RTLD_DEFAULT, "mallctl"))
        without_jemalloc();
    return api_failures ? api_end() : with_jemalloc(argc, argv, cases);
}
