/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Was anything forgotten (G1)? The heap's addresses come and go, so nobody
 * can say afterwards which release an event belonged to. Witness pages can:
 * each is marked before its release and unmarked by the event that covers
 * it, or by OVERFLOW, which covers everything. A mark that is left when all
 * was drained is a release that nobody was told of.
 *
 * A page is used again only after its mark went; a late second telling of
 * its former release can then hide a loss, which errs towards passing, and
 * rarely: there are PAGES releases in between.
 */
#include <sys/mman.h>

#include "torture_child.h"

#define PAGES 4096
#define PAGE 4096ul

static char *region;
static unsigned lane_count;
static _Atomic bool marked[TORTURE_THREADS][PAGES];
static unsigned turn[TORTURE_THREADS]; /* each lane's own releaser only */

bool witness_init(unsigned lanes)
{
    lane_count = lanes;
    region = mmap(NULL, lanes * PAGES * PAGE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return region != MAP_FAILED;
}

void witness_release(unsigned lane)
{
    unsigned page = turn[lane]++ % PAGES;
    char *p = region + (lane * PAGES + page) * PAGE;

    /* relaxed: the mark precedes the release in this thread, and whoever
       unmarks it learnt of the release through the library's own ordering. */
    if (atomic_load_explicit(&marked[lane][page], memory_order_relaxed))
        return; /* told later than PAGES releases: slow, not lost */
    *p = 1;
    atomic_store_explicit(&marked[lane][page], true, memory_order_relaxed);
    madvise(p, PAGE, MADV_DONTNEED);
    torture_add(&child.board->witnesses);
}

void witness_told(const struct lapse_event *event)
{
    size_t total = (size_t)lane_count * PAGES;
    uintptr_t base = (uintptr_t)region, end = base + total * PAGE;
    uintptr_t stop = event->len > UINTPTR_MAX - event->addr
                         ? UINTPTR_MAX
                         : event->addr + event->len;

    if (event->addr >= end || stop <= base)
        return;
    size_t first = event->addr > base ? (event->addr - base) / PAGE : 0;
    size_t last = stop < end ? (stop - base + PAGE - 1) / PAGE : total;
    for (size_t i = first; i < last; i++)
        atomic_store_explicit(&marked[i / PAGES][i % PAGES], false,
                              memory_order_relaxed);
}

uint64_t witness_lost(void)
{
    uint64_t lost = 0;

    for (unsigned lane = 0; lane < lane_count; lane++)
        for (unsigned i = 0; i < PAGES; i++)
            lost += atomic_load_explicit(&marked[lane][i],
                                         memory_order_relaxed);
    return lost;
}
