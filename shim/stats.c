/* SPDX-License-Identifier: BSD-3-Clause */
/* lapse_stats, and the names of things. */
#include <errno.h>
#include <string.h>

#include "inflight.h"
#include "release.h"
#include "report.h"
#include "slab.h"
#include "subscriber.h"

static uint64_t load(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static void add_tally(struct lapse_stats *out, const struct report_tally *t)
{
    for (unsigned p = 0; p < LAPSE_PATH_COUNT; p++)
        report_path_add(&out->path[p], &t->path[p]);
    out->published += load(&t->published);
    out->filtered += load(&t->filtered);
}

int lapse_stats(struct lapse_stats *out)
{
    uint32_t high = in_flight_high();
    struct lapse_stats s = {.size = sizeof(s)};

    if (!out || out->size < sizeof(s))
        return -EINVAL;
    for (uint32_t i = 0; i < high; i++)
        add_tally(&s, &lapse_report->tallies[i]);
    for (unsigned i = 0; i < SUBSCRIBERS_MAX; i++) {
        struct pool *p = &lapse_subscribers.one[i].pool;
        uint64_t used =
            atomic_load_explicit(&p->high, memory_order_relaxed);

        s.pool_size += p->size;
        if (used > s.pool_high)
            s.pool_high = used;
    }
    s.delivered = atomic_load_explicit(&lapse_subscribers.delivered,
                                       memory_order_relaxed);
    s.overflowed = atomic_load_explicit(&lapse_subscribers.overflowed,
                                        memory_order_relaxed);
    s.in_flight_high = high;
    s.subscribers = (uint64_t)__builtin_popcountll(
        atomic_load_explicit(&lapse_live, memory_order_relaxed));
    s.watch_bytes = slab_bytes();
    memcpy(out, &s, sizeof(s));
    return 0;
}

const char *lapse_reason_name(unsigned reason)
{
    static const char *const names[] = {
        "munmap", "replace", "mremap", "brk",  "shmdt",   "madvise",
        "unload", "file",    "free",   "user", "overflow"};

    return reason < sizeof(names) / sizeof(*names) ? names[reason] : "?";
}

const char *lapse_path_name(unsigned path)
{
    static const char *const names[LAPSE_PATH_COUNT] = {
        "munmap", "mmap",  "mremap",          "brk",              "madvise",
        "shmdt",  "shmat", "process_madvise", "remap_file_pages",
        "fallocate", "ftruncate", "truncate", "open", "publish", "free",
        "backstop"};

    return path < LAPSE_PATH_COUNT ? names[path] : "?";
}
