/* SPDX-License-Identifier: BSD-3-Clause */
/* Rounding, and the edges where a sum would wrap. */
#include "shim/range.h"

#include <criterion/criterion.h>

#define END USER_END
#define P PAGE_SIZE
#define NO 1, 0 /* end below start: refused */

struct sample {
    uintptr_t addr;
    size_t len;
    uintptr_t start, end;
};

static const struct sample calls[] = {
    {P, P, P, 2 * P},
    {P, 1, P, 2 * P},
    {P, P + 1, P, 3 * P},
    {0, 1, 0, P},
    {P, 0, NO},
    {P + 1, P, NO},
    {P - 1, P, NO},
    {END, 1, NO},
    {END - P, P, END - P, END},
    {END - P, P + 1, END - P, END},
    {END - P, SIZE_MAX / 2, END - P, END},
    {0, SIZE_MAX - P + 1, 0, END},
    {P, SIZE_MAX - P + 1, P, END},
    {P, SIZE_MAX - P + 2, NO},
    {P, SIZE_MAX, NO},
    {~(P - 1), P, NO},
};

static const struct sample users[] = {
    {P, P, P, 2 * P},
    {P, 1, P, 2 * P},
    {2 * P - 1, 1, P, 2 * P},
    {2 * P - 1, 2, P, 3 * P},
    {1, 1, 0, P},
    {0, 1, NO},
    {P, 0, NO},
    {END - 1, 1, END - P, END},
    {END - 1, 2, NO},
    {END, 1, NO},
    {P, END - P, P, END},
    {P, END - P + 1, NO},
    {P, SIZE_MAX, NO},
    {P, SIZE_MAX - P, NO},
    {UINTPTR_MAX, 1, NO},
    {UINTPTR_MAX, SIZE_MAX, NO},
};

static void expect(const char *what, const struct sample *s, bool ok,
                   uintptr_t start, uintptr_t end)
{
    if (s->start > s->end)
        cr_expect(!ok, "%s %lx+%lx: accepted", what, s->addr, s->len);
    else
        cr_expect(ok && start == s->start && end == s->end,
                  "%s %lx+%lx: %d, %lx to %lx", what, s->addr, s->len, ok,
                  start, end);
}

Test(range, rounds_calls_as_the_kernel)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
        uintptr_t start = 0, end = 0;
        bool ok = range_of_call(calls[i].addr, calls[i].len, &start, &end);

        expect("call", &calls[i], ok, start, end);
    }
}

Test(range, rounds_users_outward_or_refuses)
{
    for (size_t i = 0; i < sizeof(users) / sizeof(*users); i++) {
        uintptr_t start = 0, end = 0;
        bool ok = range_of_user((void *)users[i].addr, users[i].len, &start,
                                &end);

        expect("user", &users[i], ok, start, end);
    }
}

Test(range, rounds_pages)
{
    cr_expect_eq(page_up(0), 0);
    cr_expect_eq(page_up(1), P);
    cr_expect_eq(page_up(P), P);
    cr_expect_eq(page_down(P - 1), 0);
    cr_expect_eq(page_down(P), P);
    cr_expect_eq(page_up(END), END);
}
