/* SPDX-License-Identifier: BSD-3-Clause */
/* lapse_publish and its two halves: a release that no hook sees. */
#include <errno.h>

#include "release.h"
#include "trace_release.h"

#define CALLER ((uintptr_t)__builtin_return_address(0))

static int begin(const void *addr, size_t len, struct release *r,
                 uintptr_t caller)
{
    uintptr_t first, last;

    if (!range_of_user(addr, len, &first, &last))
        return -EINVAL;
    release_announce(r, range_pack(first, last), LAPSE_REASON_USER);
    release_count(r, LAPSE_PATH_PUBLISH, last - first, 1, INSIDE_NOTHING);
    if (release_in_hull(first, last))
        release_publish(r, (uintptr_t)addr, (uintptr_t)addr + len,
                        LAPSE_REASON_USER);
    if (__builtin_expect(observing(OBSERVE_TRACE), 0))
        trace_release(r, (uintptr_t)addr, (uintptr_t)addr + len,
                      LAPSE_PATH_PUBLISH, INSIDE_NOTHING, caller);
    return 0;
}

int lapse_publish(const void *addr, size_t len)
{
    struct release r;
    int err = begin(addr, len, &r, CALLER);

    if (!err)
        release_end(&r);
    return err;
}

int lapse_publish_begin(const void *addr, size_t len, lapse_release *release)
{
    struct release r;
    int err;

    if (!release)
        return -EINVAL;
    err = begin(addr, len, &r, CALLER);
    /* Other releases may begin and end in any order before this one ends; only
     * without a slot, by which fork knows it, the thread counts as inside. */
    if (!err && r.slot)
        release_leave(&r);
    release->private_[0] = err ? 0 : (uintptr_t)r.slot;
    release->private_[1] = !err;
    return err;
}

int lapse_publish_end(lapse_release *release)
{
    struct release r;

    if (!release || release->private_[1] != 1)
        return -EINVAL;
    r.slot = (struct in_flight *)(uintptr_t)release->private_[0];
    release->private_[1] = 0;
    r.outside = lapse_hint.depth;
    if (r.slot)
        lapse_hint.depth = r.outside + 1;
    else if (r.outside) /* a hook that began before may have ended */
        r.outside--;
    release_end(&r);
    return 0;
}
