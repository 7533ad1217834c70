/* SPDX-License-Identifier: BSD-3-Clause */
/* Noticing that somebody changed what we patched. */
#include "hooks/patched.h"

#include <criterion/criterion.h>
#include <string.h>

#define SITE 20 /* in the function */

static uint8_t function[64];
static const uint8_t ours[ARCH_WINDOW] = {0xe9, 1, 2, 3, 4};
static uint32_t mechanism;
static const char *detail;

static void patch(void)
{
    memset(function, 0x90, sizeof(function));
    memcpy(function + SITE, ours, sizeof(ours));
    patched_add("path", "where", function + SITE, ours, function);
    patched_seal();
}

static bool changed(const char *path)
{
    mechanism = LAPSE_SITE;
    detail = "";
    return patched_now(path, "where", &mechanism, &detail);
}

/* A jump of 14 bytes to a function of this program. */
static void jump_at(uint8_t *at)
{
    uintptr_t target = (uintptr_t)patch;

    memcpy(at, "\xff\x25\0\0\0\0", 6);
    memcpy(at + 6, &target, sizeof(target));
}

Test(patched, is_as_it_was_left)
{
    patch();
    cr_expect_not(changed("path"));
    cr_expect_not(changed("other"));
    cr_expect(patched_is_site(function + SITE));
    cr_expect_not(patched_is_site(function));
}

Test(patched, is_not_looked_at_before_it_is_sealed)
{
    patched_add("path", "where", function + SITE, ours, NULL);
    cr_expect_not(changed("path"), "its bytes are not there yet");
}

Test(patched, says_that_a_site_is_overwritten_and_whose_row_it_is)
{
    patch();
    jump_at(function + SITE);
    cr_expect(changed("path"));
    cr_expect_eq(mechanism, LAPSE_UNCOVERED);
    cr_expect(strstr(detail, "overwritten since"), "%s", detail);
    cr_expect_not(changed("other"));
    memcpy(function + SITE, ours, sizeof(ours));
    cr_expect_not(changed("path"), "they put it back");
}

Test(patched, says_that_a_site_may_be_bypassed)
{
    patch();
    jump_at(function);
    cr_expect(changed("path"));
    cr_expect_eq(mechanism, LAPSE_SITE);
    cr_expect(strstr(detail, "bypassed"), "%s", detail);
}

Test(patched, does_not_blame_who_was_there_before)
{
    memset(function, 0x90, sizeof(function));
    jump_at(function);
    memcpy(function + SITE, ours, sizeof(ours));
    patched_add("path", "where", function + SITE, ours, function);
    patched_seal();
    cr_expect_not(changed("path"));
    memset(function, 0x90, SITE);
    cr_expect_not(changed("path"), "they have gone");
}

/* Callers hold on to the text; there is not room for any number of it. */
Test(patched, keeps_its_sentences_and_their_number)
{
    const char *first;

    patch();
    jump_at(function + SITE);
    changed("path");
    first = detail;
    for (uintptr_t i = 0; i < 100; i++) {
        memcpy(function + SITE + 6, &i, sizeof(i));
        cr_expect(changed("path"));
        cr_expect(strstr(detail, "overwritten since") == detail);
    }
    cr_expect(strstr(first, "overwritten since") == first);
    jump_at(function + SITE);
    changed("path");
    cr_expect_eq(detail, first);
}
