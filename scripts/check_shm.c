/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows: System V segments, detached, or attached over what is watched. */
#include "check_shm.h"

#include <sys/ipc.h>
#include <sys/shm.h>

#include "check_memory.h"

/* Goes when nobody is attached any more, so the row must be. */
static bool segment(struct scene *s, size_t size)
{
    s->id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
    return done(s, s->id >= 0, "shmget");
}

static void *attach(struct scene *s, void *at, int flags)
{
    void *got = shmat(s->id, at, flags);

    shmctl(s->id, IPC_RMID, NULL);
    return got;
}

bool shmdt_setup(struct scene *s)
{
    if (!segment(s, CHECK_BYTES))
        return false;
    s->addr = attach(s, NULL, 0);
    release_names(s, s->addr, CHECK_BYTES);
    return done(s, s->addr != (void *)-1, "shmat");
}

bool shmdt_release(struct scene *s)
{
    return done(s, !shmdt(s->addr), "shmdt");
}

bool shm_remap_setup(struct scene *s)
{
    return anonymous_setup(s) && segment(s, 4 * PAGE_BYTES);
}

/* Four pages, the last of which it fills in part only. */
bool shm_odd_setup(struct scene *s)
{
    return anonymous_setup(s) && segment(s, 3 * PAGE_BYTES + 100);
}

bool shm_remap_release(struct scene *s)
{
    return done(s, attach(s, s->named, SHM_REMAP) == s->named,
                "shmat(SHM_REMAP)");
}

bool shm_round_release(struct scene *s)
{
    return done(s, attach(s, s->named + 123, SHM_REMAP | SHM_RND) == s->named,
                "shmat(SHM_REMAP | SHM_RND)");
}
