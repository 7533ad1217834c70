/* SPDX-License-Identifier: BSD-3-Clause */
/* Which windows may be replaced. Machine code is written out by hand. */
#include "hooks/window.h"

#include <criterion/criterion.h>
#include <string.h>

#include "hooks/arch.h"
#include "hooks/module.h"
#include "tests/fake_hooks.h"

#define MOV 0xb8, 0x0b, 0x00, 0x00, 0x00 /* mov $11,%eax */
#define SYSCALL 0x0f, 0x05
#define CMP 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff /* cmp $-4095,%rax */
#define RET 0xc3
#define CODE(...) {__VA_ARGS__}, sizeof((uint8_t[]){__VA_ARGS__})

struct sample {
    const char *name;
    uint8_t code[48];
    size_t size;
    size_t site;
    const char *why; /* how the refusal begins, or NULL */
};

static const struct sample samples[] = {
    {"plain", CODE(MOV, SYSCALL, CMP, 0x73, 0x01, RET, RET), 0, NULL},
    {"endbr64", CODE(0xf3, 0x0f, 0x1e, 0xfa, MOV, SYSCALL, RET), 4, NULL},
    {"jump over it", CODE(0x75, 0x07, MOV, SYSCALL, CMP, RET), 2, NULL},
    {"jump to its begin", CODE(MOV, SYSCALL, CMP, 0x77, 0xf1, RET), 0, NULL},
    {"jump to its second byte",
     CODE(MOV, SYSCALL, CMP, 0x77, 0xf2, RET), 0, "its function jumps"},
    {"jump to its last byte",
     CODE(0xeb, 0x04, MOV, SYSCALL, CMP, RET), 2, "its function jumps"},
    {"jump to the system call",
     CODE(0xeb, 0x05, MOV, SYSCALL, CMP, RET), 2, "its function jumps"},
    {"far jump to the system call",
     CODE(0x0f, 0x84, 0x05, 0, 0, 0, MOV, SYSCALL, CMP, RET), 6,
     "its function jumps"},
    {"call of the system call",
     CODE(0xe8, 0x05, 0, 0, 0, MOV, SYSCALL, CMP, RET), 5,
     "its function jumps"},
    {"loop to the system call",
     CODE(MOV, SYSCALL, CMP, 0xe2, 0xf6, RET), 0, "its function jumps"},
    {"inside of a constant",
     CODE(0x48, 0xb8, MOV, SYSCALL, 0, 0x85, 0xc0, RET), 2,
     "its instructions do not begin"},
    {"with a prefix before", CODE(0x41, MOV, SYSCALL, CMP, RET), 1,
     "its instructions do not begin"},
    {"not to be decoded", CODE(MOV, SYSCALL, CMP, 0x06, RET), 0,
     "its function cannot be decoded"},
    {"carry read", CODE(MOV, SYSCALL, 0x72, 0x00, RET), 0, "flags"},
    {"carry added", CODE(MOV, SYSCALL, 0x11, 0xc0, RET), 0, "flags"},
    {"carry added, immediate", CODE(MOV, SYSCALL, 0x83, 0xd0, 0x00, RET), 0,
     "flags"},
    {"flags set late", CODE(MOV, SYSCALL, 0x48, 0x89, 0xc2, CMP, RET), 0,
     NULL},
    {"flags read late", CODE(MOV, SYSCALL, 0x48, 0x89, 0xc2, 0x74, 0, RET), 0,
     "flags"},
    {"a constant like a jump to it",
     CODE(0xb9, 0xeb, 0x05, 0, 0, MOV, SYSCALL, RET), 5, NULL},
    {"a jump to it inside of a constant",
     CODE(0xb9, 0xeb, 0x05, 0xeb, 0x03, MOV, SYSCALL, RET), 5, NULL},
    {"behind what cannot be decoded", CODE(0x06, MOV, SYSCALL, RET), 1,
     "its function cannot be decoded"},
    {"at once back", CODE(MOV, SYSCALL, RET), 0, NULL},
    {"nothing behind", CODE(MOV, SYSCALL), 0, "flags"},
};

static void expect(const char *name, const char *why, const char *begin)
{
    if (!begin)
        cr_expect_null(why, "%s: %s", name, why);
    else
        cr_expect(why && !strncmp(why, begin, strlen(begin)), "%s: %s", name,
                  why ? why : "accepted");
}

/* Without decoding what no branch into the window can be in. */
static const char *next_why(const struct sample *s)
{
    if (!strcmp(s->name, "not to be decoded"))
        return NULL;
    return strcmp(s->name, "nothing behind") ? s->why : "its site is outside";
}

Test(window, takes_and_refuses_samples)
{
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        const struct sample *s = &samples[i];

        expect(s->name, window_check(s->code, s->size, true,
                                     s->code + s->site), s->why);
        expect(s->name,
               window_check_next(&(struct window_memo){0}, s->code, s->size,
                                 s->code + s->site), next_why(s));
    }
}

Test(window, ends_with_a_function_of_unknown_size)
{
    static const uint8_t code[] = {MOV, SYSCALL, CMP, 0x73, 0x01, RET, RET,
                                   0x06, 0x06};
    static const uint8_t early[] = {0x75, 0x0e, MOV, SYSCALL, CMP, RET, 0x06,
                                    0x90, RET};

    expect("whole", window_check(code, sizeof(code), true, code),
           "its function cannot be decoded");
    expect("found", window_check(code, sizeof(code), false, code), NULL);
    expect("a branch leads on",
           window_check(early, sizeof(early), false, early + 2),
           "its function cannot be decoded");
}

Test(window, refuses_what_is_too_long_or_elsewhere)
{
    static uint8_t code[WINDOW_LIMIT + 1];

    memset(code, 0x90, sizeof(code));
    memcpy(code, (uint8_t[]){MOV, SYSCALL, RET}, 8);
    expect("long", window_check(code, sizeof(code), true, code),
           "its function is too long");
    expect("limit", window_check(code, WINDOW_LIMIT, true, code), NULL);
    expect("before", window_check(code + 1, 64, true, code),
           "its site is outside");
    expect("cut off", window_check(code, 6, true, code),
           "its site is outside");
}

Test(window, takes_every_site_of_this_libc)
{
    struct module libc;

    cr_assert(module_find("libc.so.6", &libc));
    for (int i = 0; i <= HOOK_OPENAT; i++) {
        bool any = i == HOOK_OPEN; /* which has no site of its number */
        const char *name = any ? "syscall" : lapse_hooks[i].name;
        uint8_t bytes[ARCH_SITE];
        size_t size;
        const uint8_t *code = module_function(&libc, name, &size), *site;

        cr_assert_not_null(code, "%s", name);
        arch_site_bytes(bytes, any ? ARCH_SYSCALL : ARCH_PLAIN,
                        lapse_hooks[i].nr);
        site = memmem(code, size, bytes, sizeof(bytes));
        cr_assert_not_null(site, "%s", name);
        expect(name, window_check(code, size, true, site), NULL);
    }
}

Test(window, remembers_a_function_for_its_next_site)
{
    static const uint8_t code[] = {
        0x31, 0xc0, MOV, SYSCALL, 0x85, 0xc0, 0x75, 0x08, /* jne to the next */
        MOV, SYSCALL, RET, MOV, SYSCALL, 0x85, 0xc0, 0x75, 0xf7, RET};
    struct window_memo memo = {0};

    for (int i = 0; i < 2; i++) {
        expect("first", window_check_next(&memo, code, sizeof(code), code + 2),
               NULL);
        expect("second", window_check_next(&memo, code, sizeof(code),
                                           code + 13), NULL);
        cr_expect_eq(memo.begin, code);
        expect("jumped into", window_check_next(&memo, code, sizeof(code),
                                                code + 21),
               "its function jumps into the site");
        expect("odd", window_check_next(&memo, code, sizeof(code), code + 3),
               "its instructions do not begin");
        expect("outside", window_check_next(&memo, code, 10, code + 13),
               "its site is outside");
    }
}

/* All branches of this libc, as the decoder finds them. */
Test(window, no_branch_is_missed_that_is_not_decoded)
{
    struct module libc;
    struct arch_insn insn;
    size_t branches = 0, missed = 0;

    cr_assert(module_find("libc.so.6", &libc));
    for (size_t at = 0; at < libc.text_size; at += insn.size) {
        const uint8_t *code = libc.text + at;

        if (!arch_decode(code, libc.text_size - at, &insn)) {
            insn.size = 1; /* a jump table, or a switch of modes */
            continue;
        }
        if (!insn.target)
            continue;
        branches++;
        missed += !arch_may_branch(code, insn.size, insn.target - 1,
                                   insn.target + 1);
    }
    cr_expect_gt(branches, 10000);
    cr_expect_eq(missed, 0, "%zu of %zu branches", missed, branches);
}
