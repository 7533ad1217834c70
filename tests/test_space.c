/* SPDX-License-Identifier: BSD-3-Clause */
/* Address space as a scale: what is folded, and where addresses are. */
#include <criterion/criterion.h>

#include "scripts/space.h"

#define K ((uint64_t)1024)
#define M (1024 * K)

Test(space, folds_the_largest_gaps)
{
    struct space_range range[] = {{900 * M, 901 * M},
                                  {10 * M, 11 * M},
                                  {12 * M, 13 * M},
                                  {100 * M, 101 * M},
                                  {103 * M, 104 * M}};
    struct space space = {.zones = 99};

    space_fold(&space, range, 5, 3, 1);
    cr_assert_eq(space.zones, 3);
    cr_assert_eq(space.zone[0].start, 10 * M);
    cr_assert_eq(space.zone[0].end, 13 * M);
    cr_assert_eq(space.zone[1].start, 100 * M);
    cr_assert_eq(space.zone[1].end, 104 * M);
    cr_assert_eq(space.zone[2].start, 900 * M);
    cr_assert_eq(space.zone[2].end, 901 * M);
}

Test(space, leaves_small_gaps)
{
    struct space_range range[] = {{0, 4 * K}, {8 * K, 12 * K}, {5 * M, 6 * M}};
    struct space space;

    space_fold(&space, range, 3, 10, M);
    cr_assert_eq(space.zones, 2);
    cr_assert_eq(space.zone[0].end, 12 * K);
}

Test(space, equal_gaps_are_no_more_zones_than_allowed)
{
    struct space_range range[40];
    struct space space;

    for (uint64_t i = 0; i < 40; i++)
        range[i] = (struct space_range){i * 2 * M, i * 2 * M + M};
    space_fold(&space, range, 40, 5, 1);
    cr_assert_eq(space.zones, 5);
    cr_assert_eq(space.zone[4].end, 79 * M);
    for (uint64_t i = 0; i < 40; i++)
        range[i] = (struct space_range){i * 2 * M, i * 2 * M + M};
    space_fold(&space, range, 40, 1, 1);
    cr_assert_eq(space.zones, 1);
    cr_assert_eq(space.zone[0].end, 79 * M);
}

Test(space, overlapping_and_empty_ranges)
{
    struct space_range range[] = {
        {M, 5 * M}, {2 * M, 3 * M}, {4 * M, 6 * M}, {9 * M, 9 * M}};
    struct space space;

    cr_assert_eq(space_bytes(range, 4), 5 * M);
    space_fold(&space, range, 4, 8, 1);
    cr_assert_eq(space.zones, 1);
    cr_assert_eq(space.zone[0].start, M);
    cr_assert_eq(space.zone[0].end, 6 * M);
    space_fold(&space, range, 0, 8, 1);
    cr_assert_eq(space.zones, 0);
    space_place(&space, 100, 5);
    cr_assert_eq(space_y(&space, M), 0);
}

Test(space, falls_as_addresses_rise)
{
    struct space_range range[] = {
        {0x1000, 0x2000}, {M, 65 * M}, {1000 * M, 1001 * M}};
    uint64_t at[] = {0x1000, 0x1800, 0x1fff,  M,        2 * M,
                     64 * M, 65 * M, 999 * M, 1000 * M, 1001 * M};
    struct space space;
    double before = 101;

    space_fold(&space, range, 3, 8, 1);
    space_place(&space, 100, 5);
    for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
        double y = space_y(&space, at[i]);

        cr_assert_leq(y, before, "%zu", i);
        cr_assert(i == 7 || y < before, "%zu", i); /* within a gap */
        before = y;
    }
    cr_assert_float_eq(space_y(&space, 0x1000), 100, 1e-6);
    cr_assert_float_eq(space_y(&space, 1001 * M), 0, 1e-6);
    cr_assert_float_eq(space.zone[0].top - space.zone[1].bottom, 5, 1e-6);
    cr_assert_eq(space_zone_at(&space, 64 * M), 1);
    cr_assert_eq(space_zone_at(&space, 999 * M), 1);
    cr_assert_eq(space_zone_at(&space, 1000 * M), 2);
}

Test(space, the_busier_the_higher)
{
    struct space_range range[] = {{M, 2 * M}, {99 * M, 100 * M}};
    struct space space;

    space_fold(&space, range, 2, 8, 1);
    space.zone[0].uses = 1;
    space.zone[1].uses = 1000;
    space_place(&space, 100, 0);
    cr_assert_gt(space.zone[1].bottom - space.zone[1].top, 60);
    cr_assert_gt(space.zone[0].bottom - space.zone[0].top, 10);
}
