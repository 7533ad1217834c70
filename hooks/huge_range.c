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

/* hugetlb memory is a file's, also what is mapped as anonymous. */
static bool may_be_huge(const struct maps_line *line)
{
    return maps_is_file(line) && line->start % LARGE == 0 &&
           line->end % LARGE == 0;
}

__attribute__((noinline)) /* for its buffer */
static bool is_huge_at(uintptr_t at)
{
    char text[MAPS_TEXT];
    struct maps m;
    bool huge = false;

    for (maps_open(&m, text, sizeof(text)); maps_next(&m);)
        if (m.line.start <= at && at < m.line.end)
            huge = may_be_huge(&m.line);
    return !maps_close(&m) || huge;
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
