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
__attribute__((noinline)) /* for its buffer */
static uintptr_t last_piece_end(uintptr_t start)
{
    uintptr_t end = start + PAGE_SIZE; /* not attached: the call fails */
    char text[MAPS_TEXT];
    struct maps m;

    for (maps_open(&m, text, sizeof(text)); maps_next(&m);)
        if (maps_is_file(&m.line) && m.line.start >= start &&
            m.line.offset == m.line.start - start)
            end = m.line.end;
    return maps_close(&m) ? end : USER_END;
}

uintptr_t shm_attached_end(uintptr_t start)
{
    return subscribed() || lapse_observing ? last_piece_end(start)
                                           : USER_END;
}
