/* SPDX-License-Identifier: BSD-3-Clause */
/* The coverage table: complete, bounded, and never silent. */
#include "hooks/coverage.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "hooks/backstop_open.h"

#define MAX_ROWS 64

static struct lapse_coverage rows[MAX_ROWS];

static int find(const char *path, const char *where)
{
    int n = lapse_coverage(rows, MAX_ROWS);

    for (int i = 0; i < n; i++)
        if (!strcmp(rows[i].path, path) && !strcmp(rows[i].where, where))
            return i;
    return -1;
}

Test(coverage, rejects_null_rows_but_counts)
{
    cr_assert_eq(lapse_coverage(NULL, 1), -EINVAL);
    cr_assert_gt(lapse_coverage(NULL, 0), 0);
    cr_assert_leq(lapse_coverage(NULL, 0), MAX_ROWS);
}

Test(coverage, writes_no_more_rows_than_asked_for)
{
    memset(rows, 0x5a, sizeof(rows));
    cr_assert_gt(lapse_coverage(rows, 2), 2);
    cr_assert_neq(rows[1].spare, 0x5a5a5a5a);
    cr_assert_eq(rows[2].spare, 0x5a5a5a5a);
}

Test(coverage, names_every_path_once_and_says_why_it_is_not_seen)
{
    int n = lapse_coverage(rows, MAX_ROWS);

    for (int i = 0; i < n; i++) {
        cr_assert(rows[i].path[0] && rows[i].where[0] && rows[i].detail);
        if (rows[i].mechanism == LAPSE_UNCOVERED)
            cr_assert(rows[i].detail[0], "%s says no why", rows[i].path);
        for (int j = 0; j < i; j++)
            cr_assert(strcmp(rows[i].path, rows[j].path) ||
                      strcmp(rows[i].where, rows[j].where));
    }
}

Test(coverage, has_a_row_for_each_path_of_the_design)
{
    static const char *const libc[] = {
        "munmap", "mmap", "mremap", "brk", "madvise", "shmdt", "shmat",
        "process_madvise", "remap_file_pages", "syscall", "fallocate",
        "ftruncate", "truncate", "open"};

    for (size_t i = 0; i < sizeof(libc) / sizeof(libc[0]); i++)
        cr_assert_geq(find(libc[i], COVERAGE_LIBC), 0, "%s", libc[i]);
    cr_assert_geq(find("munmap", COVERAGE_LOADER), 0);
    cr_assert_geq(find("mmap", COVERAGE_LOADER), 0);
    cr_assert_geq(find("brk", COVERAGE_LOADER), 0);
    cr_assert_geq(find("dlmopen", COVERAGE_SECOND), 0);
    cr_assert_geq(find("other processes",
                       "files and segments that are shared with them"), 0);
    cr_assert_eq(rows[find("publish", "the owner of the memory")].mechanism,
                 LAPSE_ASKED);
    cr_assert_geq(find("inline system calls", "any code but libc and ld.so"),
                  0);
    cr_assert_geq(find("io_uring", "the kernel"), 0);
    cr_assert_geq(find("ioctl", "files"), 0);
}

Test(coverage, begins_with_nothing_seen)
{
    cr_assert(coverage_none());
    cr_assert_not(coverage_complete());
    cr_assert_not_null(coverage_gap());
}

Test(coverage, set_changes_one_row)
{
    coverage_set("munmap", COVERAGE_LOADER, LAPSE_SITE, "");
    cr_assert_eq(rows[find("munmap", COVERAGE_LOADER)].mechanism, LAPSE_SITE);
    cr_assert_eq(rows[find("munmap", COVERAGE_LIBC)].mechanism,
                 LAPSE_UNCOVERED);
    cr_assert_not(coverage_none());
    cr_assert_not(coverage_complete());
}

Test(coverage, rows_can_be_added_while_there_is_room)
{
    int before = lapse_coverage(NULL, 0), n;
    static char names[MAX_ROWS][8];

    for (int i = 0; i < 5; i++) {
        snprintf(names[i], sizeof(names[i]), "lib%d", i);
        coverage_add("free", names[i], LAPSE_ENTRY, "");
    }
    cr_assert_eq(lapse_coverage(rows, MAX_ROWS), before + 5);
    cr_assert_eq(rows[before].mechanism, LAPSE_ENTRY);
    cr_assert_eq(find("free", "lib4"), before + 4);
    for (int i = 0; i < MAX_ROWS; i++)
        coverage_add("free", "one more", LAPSE_ENTRY, "");
    n = lapse_coverage(rows, MAX_ROWS);
    cr_assert(n > before + 5 && n < MAX_ROWS, "bounded: %d", n);
}

Test(coverage, is_complete_without_what_has_no_site)
{
    for (const struct lapse_coverage *row; (row = coverage_gap());)
        coverage_set(row->path, row->where, LAPSE_ABSENT, "");
    cr_assert(coverage_complete());
    cr_assert(coverage_none(), "what is absent is not seen");
    coverage_set("brk", COVERAGE_LIBC, LAPSE_UNCOVERED, "for a reason");
    cr_assert_str_eq(coverage_gap()->detail, "for a reason");
}

/* A registration may fail because all was refused meanwhile. */
Test(coverage, what_the_kernel_refused_is_never_called_seen_again)
{
    const char *where = "any code but libc and ld.so";

    backstop_cover(BACKSTOP_WORKS);
    cr_assert_eq(rows[find("inline system calls", where)].mechanism,
                 LAPSE_KERNEL);
    backstop_cover(BACKSTOP_REFUSED);
    backstop_cover(BACKSTOP_PARTLY);
    cr_assert_eq(rows[find("inline system calls", where)].mechanism,
                 LAPSE_UNCOVERED);
    cr_assert_eq(rows[find("io_uring", "the kernel")].mechanism,
                 LAPSE_UNCOVERED);
}
