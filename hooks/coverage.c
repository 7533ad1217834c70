/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One row per release path and place. Sites come first; sites_patch() fills
 * them in. The rest says what this version sees no part of.
 */
#include "hooks/coverage.h"

#include <errno.h>
#include <string.h>

#include "hooks/patched.h"
#include "hooks/site.h"

#define UNSEEN "not looked at yet"
#define SITE(path, where) {path, where, UNSEEN, LAPSE_UNCOVERED, 0}
#define GAP(path, where, why) {path, where, why, LAPSE_UNCOVERED, 0}

#define ROWS_FIXED 27
#define ROWS_MAX (ROWS_FIXED + 8)

static struct lapse_coverage table[] = {
    SITE("munmap", COVERAGE_LIBC),
    SITE("mmap", COVERAGE_LIBC),
    SITE("mremap", COVERAGE_LIBC),
    SITE("brk", COVERAGE_LIBC),
    SITE("madvise", COVERAGE_LIBC),
    SITE("posix_madvise", COVERAGE_LIBC), /* with the kernel's numbers */
    SITE("shmdt", COVERAGE_LIBC),
    SITE("shmat", COVERAGE_LIBC),
    SITE("process_madvise", COVERAGE_LIBC),
    SITE("remap_file_pages", COVERAGE_LIBC),
    SITE("syscall", COVERAGE_LIBC),
    SITE("fallocate", COVERAGE_LIBC),
    SITE("ftruncate", COVERAGE_LIBC),
    SITE("truncate", COVERAGE_LIBC),
    SITE("open", COVERAGE_LIBC), /* openat, creat: with O_TRUNC */
    SITE("munmap", COVERAGE_LOADER),
    SITE("mmap", COVERAGE_LOADER),
    SITE("brk", COVERAGE_LOADER),
    /* no sites from here on */
    {"publish", "the owner of the memory", "", LAPSE_ASKED, 0},
    GAP("inline system calls", "what has no event of userfaultfd",
        "shmdt, SHM_REMAP, MADV_GUARD_INSTALL, holes and ends of files: by "
        "inline calls not even the kernel tells of these"),
    GAP("io_uring", "files",
        "nobody tells of IORING_OP_FALLOCATE and IORING_OP_FTRUNCATE"),
    GAP("ioctl", "files",
        "FS_IOC_UNRESVSP, FS_IOC_ZERO_RANGE, FICLONE and the like take pages "
        "out of a file: not looked at"),
    GAP("inline system calls", "any code but libc and ld.so",
        "Go and static code enter the kernel by themselves; not seen unless "
        "they call lapse_publish, or with LAPSE_BACKSTOP=uffd"),
    GAP("io_uring", "the kernel",
        "IORING_OP_MADVISE is seen only with LAPSE_BACKSTOP=uffd"),
    SITE("dlmopen", COVERAGE_SECOND),
    GAP("other processes", "files and segments that are shared with them",
        "what another process cuts off a file, or does to this one, is not "
        "seen"),
    GAP("free", "malloc",
        "not asked for: set LAPSE_FREE=1; pages that it gives back are seen"),
    [ROWS_FIXED ... ROWS_MAX - 1] = {0}, /* coverage_add() */
};
#define SITES 18
static size_t rows_used = ROWS_FIXED; /* only the constructor adds */
#define ROWS __atomic_load_n(&rows_used, __ATOMIC_ACQUIRE)

void coverage_add(const char *path, const char *where,
                  enum lapse_mechanism mechanism, const char *detail)
{
    if (rows_used == ROWS_MAX)
        return;
    table[rows_used] =
        (struct lapse_coverage){path, where, detail, mechanism, 0};
    /* R91: pairs with the acquire of ROWS */
    __atomic_store_n(&rows_used, rows_used + 1, __ATOMIC_RELEASE);
}

void coverage_set(const char *path, const char *where,
                  enum lapse_mechanism mechanism, const char *detail)
{
    for (size_t i = 0; i < ROWS; i++) {
        struct lapse_coverage *row = &table[i];

        if (strcmp(row->path, path) || strcmp(row->where, where))
            continue;
        __atomic_store_n(&row->detail, detail, __ATOMIC_RELAXED);
        /* R90: with A90 in mechanism_of(), the detail is of this mechanism */
        __atomic_store_n(&row->mechanism, mechanism, __ATOMIC_RELEASE);
    }
}

static uint32_t mechanism_of(const struct lapse_coverage *row)
{
    /* A90: pairs with R90 in coverage_set() */
    return __atomic_load_n(&row->mechanism, __ATOMIC_ACQUIRE);
}

static void read_row(struct lapse_coverage *out, size_t i)
{
    out->path = table[i].path;
    out->where = table[i].where;
    out->mechanism = mechanism_of(&table[i]);
    /* relaxed: ordered by A90; the string was there before it */
    out->detail = __atomic_load_n(&table[i].detail, __ATOMIC_RELAXED);
    out->spare = 0;
    coverage_changed(out);
}

bool coverage_changed(struct lapse_coverage *row)
{
    if (row->mechanism == LAPSE_UNCOVERED)
        return false;
    if (!strcmp(row->where, COVERAGE_LIBC) && sites_left(row->path)) {
        row->mechanism = LAPSE_UNCOVERED;
        row->detail = "libc has a site of it where none was looked for";
        return true;
    }
    return patched_now(row->path, row->where, &row->mechanism, &row->detail);
}

const struct lapse_coverage *coverage_row(size_t i)
{
    return i < ROWS ? &table[i] : NULL;
}

__attribute__((visibility("default")))
int lapse_coverage(struct lapse_coverage *rows, size_t n)
{
    if (!rows && n)
        return -EINVAL;
    for (size_t i = 0; i < n && i < ROWS; i++)
        read_row(&rows[i], i);
    return (int)ROWS;
}

const struct lapse_coverage *coverage_gap(void)
{
    for (size_t i = 0; i < SITES; i++)
        if (mechanism_of(&table[i]) == LAPSE_UNCOVERED)
            return &table[i];
    return NULL;
}

bool coverage_complete(void)
{
    return !coverage_gap();
}

bool coverage_none(void)
{
    for (size_t i = 0; i < SITES; i++) {
        uint32_t mechanism = mechanism_of(&table[i]);

        if (mechanism != LAPSE_UNCOVERED && mechanism != LAPSE_ABSENT)
            return false;
    }
    return true;
}
