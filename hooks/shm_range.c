/* SPDX-License-Identifier: BSD-3-Clause */
#include "hooks/shm_range.h"

#include <stdbool.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#include "hooks/maps.h"
#include "shim/release.h"
#include "shim/sys.h"

static bool subscribed(void)
{
    /* relaxed: only saves the asking; who subscribes a moment later meets a
     * release in flight that is said to be as long as it can be */
    return atomic_load_explicit(&lapse_live, memory_order_relaxed) != 0;
}

size_t shm_segment_size(int id)
{
    struct shmid_ds ds;

    if (!subscribed() && !lapse_observing)
        return USER_END;
    if (sys(SYS_shmctl, id, IPC_STAT, &ds))
        return USER_END;
    return ds.shm_segsz;
}

/*
 * The kernel detaches every piece of the segment that still lies where it was
 * attached: the first page may be gone, and others. This takes every file's
 * mapping that lies so, which may be one too many, never one too few.
 */
struct attached {
    uintptr_t start;
    uintptr_t end;
};

static void take(void *arg, const struct maps_line *line)
{
    struct attached *a = arg;

    if (maps_is_file(line) && line->start >= a->start &&
        line->offset == line->start - a->start)
        a->end = line->end;
}

uintptr_t shm_attached_end(uintptr_t start)
{
    struct attached a = {.start = start};

    if ((!subscribed() && !lapse_observing) || !maps_each(take, &a))
        return USER_END;
    return a.end ? a.end : start + PAGE_SIZE; /* not attached: it fails */
}
