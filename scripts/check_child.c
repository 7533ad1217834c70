/* SPDX-License-Identifier: BSD-3-Clause */
/* One row, in a process of its own, with the library and an allocator in it. */
#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COVERAGE_MAX = 128 };

struct told {
    uintptr_t low, high; /* from the first to the last byte told of */
    uint64_t pages;      /* of those watched */
    uint32_t reasons;
};

static _Noreturn void end(int fd, struct check_result *r, uint32_t outcome,
                          const char *why)
{
    r->outcome = outcome;
    if (why)
        snprintf(r->why, sizeof(r->why), "%s", why);
    if (write(fd, r, sizeof(*r)) != sizeof(*r))
        _exit(1);
    /* Not exit: the row may have taken memory from under somebody. */
    _exit(0);
}

static void add_event(struct told *told, const struct scene *s,
                      const struct lapse_event *e)
{
    uintptr_t last = e->addr + e->len - 1; /* SIZE_MAX from 0: no wrap */

    if (!told->high || e->addr < told->low)
        told->low = e->addr;
    if (last > told->high)
        told->high = last;
    told->reasons |= 1u << e->reason;
    for (unsigned i = 0; i < CHECK_PAGES; i++) {
        uintptr_t page = (uintptr_t)s->addr + (uintptr_t)i * PAGE_BYTES;

        if (e->addr < page + PAGE_BYTES && last >= page)
            told->pages |= 1ull << i;
    }
}

static void drain(const struct shim *shim, lapse_handle h, struct told *told,
                  const struct scene *s)
{
    struct lapse_event event[16];
    int n;

    do {
        n = shim->poll(h, event, 16);
        for (int i = 0; i < n; i++)
            add_event(told, s, &event[i]);
    } while (n == 16);
}

static uint64_t pages_named(const struct scene *s)
{
    uint64_t named = 0;

    for (unsigned i = 0; i < CHECK_PAGES; i++) {
        char *page = s->addr + (size_t)i * PAGE_BYTES;

        if (page + PAGE_BYTES > s->named && page < s->named + s->named_len)
            named |= 1ull << i;
    }
    return named;
}

/*
 * Exact is what the call named, in whole pages (FREE: to the byte, with no
 * more than what the allocator added). Where only the allocator knows what it
 * named, it is the watched pages that went stale.
 */
static enum check_range compare(const struct scene *s, unsigned flags,
                                const struct told *told, uint64_t stale)
{
    uintptr_t low = (uintptr_t)s->named, high = low + s->named_len - 1;
    uint64_t must = s->named ? pages_named(s) : stale;

    if (!told->high)
        return RANGE_NONE;
    if (flags & ROW_FREE)
        return told->low > low || told->high < high ? RANGE_SHORT
               : told->low < low || told->high >= low + s->size
                   ? RANGE_WIDER
                   : RANGE_EXACT;
    if (must & ~told->pages)
        return RANGE_SHORT;
    if (told->pages & ~must)
        return RANGE_WIDER;
    if (s->named && (told->low < low || told->high > (high | (PAGE_BYTES - 1))))
        return RANGE_WIDER;
    return RANGE_EXACT;
}

/*
 * The path whose counter moved (most): how the release was seen. The kernel
 * tells of what a site saw too.
 */
static const char *path_moved(const struct shim *shim,
                              const struct lapse_stats *before,
                              const struct lapse_stats *after)
{
    const char *moved = NULL;
    uint64_t most = 0;

    for (unsigned i = 0; i < LAPSE_PATH_COUNT; i++) {
        /* Of some paths only the releases are counted. */
        uint64_t more = after->path[i].bytes - before->path[i].bytes +
                        after->path[i].releases - before->path[i].releases;

        if (more && i == LAPSE_PATH_BACKSTOP)
            more = 1;
        if (more > most) {
            most = more;
            moved = shim->path_name(i);
        }
    }
    return moved;
}

static void find_coverage(const struct shim *shim, const char *path,
                          const char *where, struct check_result *r)
{
    struct lapse_coverage row[COVERAGE_MAX];
    int n = shim->coverage(row, COVERAGE_MAX);

    if (!strcmp(r->path, "backstop"))
        r->mechanism = LAPSE_KERNEL;
    if (!path || r->mechanism)
        return;
    for (int i = 0; i < n && i < COVERAGE_MAX; i++) {
        if (strcmp(row[i].path, path) ||
            (where && strncmp(row[i].where, where, strlen(where))))
            continue;
        r->mechanism = row[i].mechanism;
        r->uncovered = row[i].mechanism == LAPSE_UNCOVERED;
        if (r->uncovered)
            snprintf(r->why, sizeof(r->why), "%s", row[i].detail);
        return;
    }
}

static void do_row(const struct check_row *row, const struct shim *shim,
                   lapse_handle h, struct check_result *r, int fd)
{
    static struct oracle oracle; /* large */
    struct scene scene = {.fd = -1, .other_fd = -1};
    struct lapse_stats before = {.size = sizeof(before)}, after = before;
    struct told told = {0};
    const char *moved;

    if (!row->setup(&scene))
        end(fd, r, CHECK_SKIPPED, scene.why);
    if (shim->watch(h, scene.addr, CHECK_BYTES))
        end(fd, r, CHECK_TROUBLE, "lapse_watch failed");
    if (!oracle_open(&oracle, scene.addr, CHECK_PAGES))
        end(fd, r, CHECK_TROUBLE, "no descriptors");
    oracle_mark_all(&oracle, "old");
    if (!oracle_hold(&oracle))
        end(fd, r, CHECK_SKIPPED, "neither io_uring nor a pipe holds such "
            "memory, so nobody can judge");
    drain(shim, h, &told, &scene);
    memset(&told, 0, sizeof(told));
    shim->stats(&before);
    if (!row->release(&scene))
        end(fd, r, CHECK_SKIPPED, scene.why);
    drain(shim, h, &told, &scene);
    shim->stats(&after);
    check_give_back(row, &scene);
    oracle_judge(&oracle, &r->verdict);
    r->by = oracle.by;
    r->told = told.pages;
    r->reasons = told.reasons;
    r->range = compare(&scene, row->flags, &told, r->verdict.stale);
    moved = path_moved(shim, &before, &after);
    if (!moved && told.high) /* not every path counts (FREE) */
        moved = row->path;
    snprintf(r->path, sizeof(r->path), "%s", moved ? moved : "");
    find_coverage(shim, row->path ? row->path : moved, row->where, r);
    end(fd, r, CHECK_DONE, NULL);
}

void check_child(int index, int fd, const char *allocator)
{
    struct check_result r = {0};
    struct shim shim;
    lapse_handle h;
    struct lapse_subscription how = {.size = sizeof(how),
                                     .delivery = LAPSE_POLL};
    int error;

    if (!shim_find(&shim))
        end(fd, &r, CHECK_TROUBLE, "the library was not loaded");
    if (allocator && !dlopen(allocator, RTLD_LAZY | RTLD_NOLOAD))
        end(fd, &r, CHECK_TROUBLE, "the allocator was not loaded");
    if (index < 0)
        end(fd, &r, CHECK_DONE, NULL);
    if (check_rows[index].flags & ROW_FREE)
        how.reasons = LAPSE_MASK(LAPSE_REASON_FREE);
    error = shim.subscribe(&how, &h);
    if (error == -ENOTSUP)
        end(fd, &r, CHECK_SKIPPED, "only where LAPSE_FREE=1 asks for it");
    if (error)
        end(fd, &r, CHECK_TROUBLE, "lapse_subscribe failed");
    do_row(&check_rows[index], &shim, h, &r, fd);
    _exit(1);
}
