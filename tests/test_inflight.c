/* SPDX-License-Identifier: BSD-3-Clause */
#include "shim/inflight.h"

#include <criterion/criterion.h>

#define TIB ((uintptr_t)1 << 40)

static unsigned number(const struct in_flight *f)
{
    return (unsigned)(f - lapse_in_flight.slot);
}

Test(inflight, announces_while_it_is_claimed)
{
    uint64_t range = range_pack(4096, 3 * 4096), turn;
    struct in_flight *f = in_flight_claim(range, lapse_hint.slot);

    cr_assert_eq(f->range, range);
    cr_assert_eq(f->owner, (uintptr_t)__builtin_thread_pointer());
    turn = f->turn;
    cr_assert(turn & 1);
    cr_assert(in_flight_open(number(f), turn));
    in_flight_release(f);
    cr_assert(!in_flight_open(number(f), turn));
    cr_assert_eq(f->range, 0);
    cr_assert_eq(f->owner, 0);
}

Test(inflight, a_turn_does_not_come_back)
{
    struct in_flight *f = in_flight_claim(RANGE_NOTHING, lapse_hint.slot);
    uint64_t turn = f->turn;

    in_flight_release(f);
    cr_assert_eq(in_flight_claim(RANGE_NOTHING, lapse_hint.slot), f,
                 "the hint is used");
    cr_assert(!in_flight_open(number(f), turn));
    cr_assert(in_flight_open(number(f), f->turn));
    in_flight_release(f);
}

/* A watch may meet a slot after its claim and before its turn. */
Test(inflight, a_guessed_turn_is_open_until_given_back)
{
    struct in_flight *f = &lapse_in_flight.slot[0];

    cr_assert(!in_flight_open(0, f->turn + 1));
    f->range = range_pack(4096, 8192);
    cr_assert(in_flight_open(0, f->turn + 1));
    f->turn++;
    cr_assert(in_flight_open(0, f->turn));
    f->turn++;
    cr_assert(!in_flight_open(0, f->turn - 1));
}

Test(inflight, high_is_the_most_at_once)
{
    struct in_flight *f[5];

    cr_assert_eq(in_flight_high(), 1);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 5; i++) {
            f[i] = in_flight_claim(RANGE_NOTHING, lapse_hint.slot);
            for (int k = 0; k < i; k++)
                cr_assert_neq(f[i], f[k]);
        }
        for (int i = 0; i < 5; i++)
            in_flight_release(f[i]);
        cr_assert_eq(in_flight_high(), 5);
    }
}

Test(inflight, full_is_null)
{
    static struct in_flight *f[IN_FLIGHT_SLOTS];

    for (int i = 0; i < IN_FLIGHT_SLOTS; i++)
        cr_assert_not_null(f[i] =
                               in_flight_claim(RANGE_NOTHING, lapse_hint.slot));
    cr_assert_eq(in_flight_high(), IN_FLIGHT_SLOTS);
    cr_assert_null(in_flight_claim(RANGE_NOTHING, lapse_hint.slot));
    in_flight_release(f[517]);
    cr_assert_eq(in_flight_claim(RANGE_NOTHING, lapse_hint.slot), f[517]);
    cr_assert_null(in_flight_claim(RANGE_NOTHING, lapse_hint.slot));
}

Test(inflight, blind_only_while_it_runs)
{
    struct in_flight *f = in_flight_claim(RANGE_NOTHING, lapse_hint.slot);

    f->blind = (uint64_t)1 << 63;
    cr_assert(in_flight_blind(63));
    cr_assert(!in_flight_blind(62));
    in_flight_release(f);
    cr_assert(!in_flight_blind(63), "a stray bit of a free slot");
    lapse_in_flight.unslotted = 1;
    cr_assert(in_flight_blind(0));
}

static void packs(uintptr_t start, uintptr_t end, uintptr_t want)
{
    uint64_t range = range_pack(start, end);

    cr_expect_neq(range, 0, "free, for %lx to %lx", start, end);
    cr_expect_neq(range, RANGE_NOTHING, "nothing, for %lx to %lx", start, end);
    cr_expect_eq(range_start(range), start);
    cr_expect_eq(range_end(range), want, "%lx to %lx: %lx", start, end,
                 range_end(range));
}

/* Every range there is: told apart from "free" and "nothing", never short. */
Test(inflight, packs_ranges)
{
    packs(4096, 8192, 8192);
    packs(0, 4096, 4096); /* root may map page 0 */
    packs(0, 8192, 8192);
    packs(USER_END - 4096, USER_END, USER_END);
    packs(0, USER_END, USER_END);
    packs(4096, 2 * TIB - 4096, 2 * TIB - 4096);
    packs(0, 2 * TIB - 8192, 2 * TIB - 8192);
    packs(0, 2 * TIB - 4096, USER_END); /* too long to say: to the end */
    packs(4096, 3 * TIB, USER_END);
}
