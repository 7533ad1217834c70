/* SPDX-License-Identifier: BSD-3-Clause */
#include "hooks/huge_range.h"

#include <linux/magic.h>
#include <stdbool.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#include "hooks/maps.h"
#include "shim/release.h"
#include "shim/sys.h"

#define LARGE ((uintptr_t)2 << 20)
#define LARGEST ((uintptr_t)1 << 30)

/* A huge page begins at a multiple of its size, or the call fails. */
static uintptr_t round_up(uintptr_t start, uintptr_t end)
{
    uintptr_t unit = start % LARGE ? PAGE_SIZE
                     : start % LARGEST ? LARGE
                                       : LARGEST;

    end = (end + unit - 1) & ~(unit - 1);
    return end < USER_END ? end : USER_END;
}

static uintptr_t end_in_file(uintptr_t end, uintptr_t most, int fd)
{
    struct statfs fs;
    uintptr_t unit;

    if (sys(SYS_fstatfs, fd, &fs))
        return most;
    if (fs.f_type != HUGETLBFS_MAGIC)
        return end;
    unit = (uintptr_t)fs.f_bsize;
    end = (end + unit - 1) & ~(unit - 1);
    return end < most ? end : most;
}

struct place {
    uintptr_t at;
    bool huge; /* may be */
};

/* hugetlb memory is a file's, also what is mapped as anonymous. */
static void take(void *arg, const struct maps_line *line)
{
    struct place *p = arg;

    if (line->start <= p->at && p->at < line->end)
        p->huge = maps_is_file(line) && line->start % LARGE == 0 &&
                  line->end % LARGE == 0;
}

static bool is_huge_at(uintptr_t at)
{
    struct place p = {.at = at};

    return !maps_each(take, &p) || p.huge;
}

uintptr_t huge_end(uintptr_t start, uintptr_t end, enum huge_of of, long what)
{
    uintptr_t most = round_up(start, end);

    if (of == HUGE_NEVER || most <= end)
        return end;
    if (of == HUGE_IS || !release_wanted(end, most))
        return most;
    if (of == HUGE_FILE)
        return end_in_file(end, most, (int)what);
    return is_huge_at((uintptr_t)what) ? most : end;
}
