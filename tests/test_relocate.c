/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Entries moved elsewhere: what was hand-made does the same from its copy,
 * and what cannot be moved says so and stays as it was.
 */
#include "hooks/relocate.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "shim/release.h"

#define ROOM 256 /* of a function; its data behind that */

/* Not the library's: there is no shim in here. */
struct release_free lapse_free;

extern char __executable_start, etext; /* by the linker */

typedef long function(long a, long b);

static uint8_t *text; /* a page of functions, padded with int3 */
static struct module module;

static void make_text(void)
{
    text = mmap(NULL, NEAR_PAGE, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(text, MAP_FAILED);
    memset(text, 0xcc, NEAR_PAGE);
    module = (struct module){
        .path = "/nonexistent", .text = text, .text_size = NEAR_PAGE};
}

static void put(size_t at, const void *code, size_t size)
{
    memcpy(text + at, code, size);
}

static void seal(void)
{
    cr_assert_eq(mprotect(text, NEAR_PAGE, PROT_READ | PROT_EXEC), 0);
}

/* A hook that counts, and does not call the function. */
static long hook_calls, hook_argument;
static const void *hook_context;
static const uintptr_t *hook_stack;

static long hook(long a, long b, long c, long d, const void *context,
                 const uintptr_t *stack)
{
    (void)b;
    (void)c;
    (void)d;
    hook_calls++;
    hook_argument = a;
    hook_context = context;
    hook_stack = stack;
    return -77;
}

static struct patcher open_patcher(bool alone)
{
    struct patcher patcher;

    patcher_open(&patcher);
    patcher.alone = alone;
    return patcher;
}

static uintptr_t real;

static struct relocation relocation_of(size_t size, bool header)
{
    return (struct relocation){.code = text,
                               .size = size,
                               .real = &real,
                               .detour = {.watched = &lapse_free,
                                          .argument = &real,
                                          .hook = (uintptr_t)hook,
                                          .header = header}};
}

/* Patches the function at the begin of text, or says why not. */
static const char *patched(size_t size, bool alone)
{
    struct relocation one = relocation_of(size, false);
    struct patcher patcher = open_patcher(alone);

    relocate(&patcher, &module, &one, 1);
    patcher_close(&patcher);
    return one.why;
}

static void nobody_watches(void)
{
    memset(&lapse_free, 0, sizeof(lapse_free));
    lapse_free.hull.low = UINTPTR_MAX;
}

static void all_is_watched(void)
{
    memset(lapse_free.near, 1, sizeof(lapse_free.near));
    lapse_free.hull.low = 0;
    lapse_free.hull.high = USER_END;
}

static long call(long a, long b)
{
    return ((function *)(uintptr_t)text)(a, b);
}

static long call_real(long a, long b)
{
    return ((function *)real)(a, b);
}

static long sum(long x, long y)
{
    return x + y;
}
static long null_or_sum(long x, long y)
{
    return x ? x + y : 5;
}
static long data(long x, long y)
{
    (void)x;
    (void)y;
    return 0x1122334455667788;
}
static long minus_one(long x, long y)
{
    (void)x;
    (void)y;
    return -1;
}

/* Functions of (rdi, rsi); what each returns for (x, y) is known. */
static const struct sample {
    const char *name;
    uint8_t code[48];
    size_t size;
    long (*wanted)(long x, long y);
} samples[] = {
    {"one long instruction",
     {0x48, 0x8d, 0x84, 0x37, 0, 0, 0, 0, /* lea 0(%rdi,%rsi),%rax */
      0xc3},
     9,
     sum},
    {"short ones, a push and a pop",
     {0x53, 0x48, 0x89, 0xfb, /* push %rbx; mov %rdi,%rbx */
      0x48, 0x01, 0xf3,       /* add %rsi,%rbx */
      0x48, 0x89, 0xd8, 0x5b, 0xc3},
     12,
     sum},
    {"endbr64 stays in front",
     {0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x89, 0xf8, /* mov %rdi,%rax */
      0x48, 0x01, 0xf0, 0xc3},
     11,
     sum},
    {"a long jcc, as glibc's free",
     {0x48, 0x85, 0xff, 0x0f, 0x84, 5,   0, 0, 0, /* test; je +5 */
      0x48, 0x8d, 0x04, 0x37, 0xc3,               /* lea (%rdi,%rsi),%rax */
      0xb8, 5,    0,    0,    0,    0xc3},
     20,
     null_or_sum},
    {"a short jcc",
     {0x48, 0x85, 0xff, 0x74, 5, /* test; je +5 */
      0x48, 0x8d, 0x04, 0x37, 0xc3, 0xb8, 5, 0, 0, 0, 0xc3},
     16,
     null_or_sum},
    {"an operand relative to rip",
     {0x48, 0x8b, 0x05, 0xf9, 0, 0, 0, /* mov 249(%rip),%rax: at ROOM */
      0xc3},
     8,
     data},
    {"relative to rip, and an immediate behind",
     {0x48, 0x83, 0x3d, 0xf8, 0, 0, 0, 1, /* cmpq $1,248(%rip) */
      0x48, 0x8b, 0x05, 0xf1, 0, 0, 0, 0xc3},
     16,
     data},
    {"a call",
     {0xe8, 6, 0, 0, 0,                   /* call +6 */
      0x48, 0xf7, 0xd8, 0xc3, 0xcc, 0xcc, /* neg %rax; ret */
      0xb8, 1, 0, 0, 0, 0xc3},
     17,
     minus_one},
};
#define SAMPLES (sizeof(samples) / sizeof(samples[0]))

static void make_sample(const struct sample *s)
{
    static const uint64_t word = 0x1122334455667788;

    make_text();
    put(0, s->code, s->size);
    put(ROOM, &word, sizeof(word));
    seal();
}

Test(relocate, what_is_moved_does_the_same)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        const struct sample *s = &samples[i];
        const char *why;

        make_sample(s);
        nobody_watches();
        why = patched(s->size, true);
        cr_assert_null(why, "%s: %s", s->name, why);
        for (long x = 0; x < 3; x++) {
            cr_expect_eq(call(x, 40), s->wanted(x, 40), "%s", s->name);
            cr_expect_eq(call_real(x, 40), s->wanted(x, 40), "%s", s->name);
        }
        cr_expect_eq(hook_calls, 0);
    }
}

Test(relocate, the_hook_gets_what_the_function_would)
{
    long before = hook_calls;

    make_sample(&samples[1]);
    cr_assert_null(patched(samples[1].size, true));
    all_is_watched();
    cr_expect_eq(call(0x1000, 2), -77);
    cr_expect_eq(hook_calls, before + 1);
    cr_expect_eq(hook_argument, 0x1000);
    cr_expect_eq(hook_context, &real);
    cr_expect(*hook_stack > (uintptr_t)&__executable_start &&
                  *hook_stack < (uintptr_t)&etext,
              "a return address");
    cr_expect_eq(call_real(0x1000, 2), 0x1002);
    cr_expect_eq(call(0, 2), 2, "NULL is the function's");
    nobody_watches();
    cr_expect_eq(call(0x1000, 2), 0x1002);
}

Test(relocate, endbr64_is_not_overwritten)
{
    make_sample(&samples[2]);
    cr_assert_null(patched(samples[2].size, true));
    cr_expect_arr_eq(text, samples[2].code, 4);
    cr_expect_eq(text[4], 0xe9);
}

/* The block of a header: which blocks come to the hook? */
static bool comes(uint64_t *block, size_t len)
{
    long before = hook_calls;

    block[-1] = len | 1;
    call((long)block, 0);
    return hook_calls > before;
}

Test(relocate, with_a_header_only_blocks_near_come_to_the_hook)
{
    struct relocation one;
    struct patcher patcher = open_patcher(true);
    size_t granule = (size_t)1 << RELEASE_GRANULE_SHIFT;
    uint8_t *memory = mmap(NULL, 16 * granule, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
            *at;
    uintptr_t g;

    cr_assert_neq(memory, MAP_FAILED);
    memory = (uint8_t *)(((uintptr_t)memory + granule - 1) & -granule);
    g = (uintptr_t)memory >> RELEASE_GRANULE_SHIFT;
    make_sample(&samples[1]);
    nobody_watches();
    one = relocation_of(samples[1].size, true);
    relocate(&patcher, &module, &one, 1);
    patcher_close(&patcher);
    cr_assert_null(one.why);
    /* Watched is [8, 9) granules; what lies about it is in its hull. */
    lapse_free.hull.low = (uintptr_t)memory + granule;
    lapse_free.hull.high = (uintptr_t)memory + 12 * granule;
    lapse_free.near[(g + 8) % RELEASE_GRANULES] = 1;
    at = memory + 4096;
    cr_expect_not(comes((uint64_t *)at, 64), "below the hull");
    cr_expect_not(comes((uint64_t *)at, granule - 4096), "up to it");
    at = memory + 13 * granule;
    cr_expect_not(comes((uint64_t *)at, 64), "above");
    at = memory + 4 * granule + 16;
    cr_expect_not(comes((uint64_t *)at, 64), "in it, in no granule marked");
    cr_expect_not(comes((uint64_t *)at, granule), "in two, not marked");
    cr_expect(comes((uint64_t *)at, 3 * granule), "too long to be sure");
    at = memory + 7 * granule + 16;
    cr_expect(comes((uint64_t *)at, granule), "into one that is marked");
    cr_expect_not(comes((uint64_t *)at, granule - 16), "just not");
    at = memory + 8 * granule + 16;
    cr_expect(comes((uint64_t *)at, 16), "in one that is marked");
    cr_expect(comes((uint64_t *)at, granule), "out of it");
    at = memory + 9 * granule + 16;
    cr_expect_not(comes((uint64_t *)at, 16), "the one behind");
}

static const struct {
    const char *why;
    uint8_t code[32];
    size_t size;
} refused[] = {
    {"it is shorter than a jump", {0x48, 0x89, 0xf8, 0xc3}, 4},
    {"it is shorter than a jump", {0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc}, 6},
    {"it is shorter than a jump", {0x31, 0xc0, 0xeb, 4, 0xc3, 0xc3, 0xc3}, 7},
    {"rare kind", {0x31, 0xc9, 0xe3, 1, 0x90, 0xc3}, 6},    /* jrcxz */
    {"rare kind", {0x31, 0xc9, 0xe2, 0x40, 0x90, 0xc3}, 6}, /* loop */
    {"among themselves", {0x90, 0x74, 1, 0x90, 0x90, 0xc3}, 6},
    {"among themselves", {0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc3}, 6},
    {"32 bits", {0x67, 0x8b, 0x05, 0, 1, 0, 0, 0xc3}, 8}, /* (%eip) */
    {"cannot be decoded", {0x06, 0x06, 0x06, 0x06, 0x06, 0xc3}, 6},
    {"cannot be decoded", {0xb8, 1, 0, 0, 0, 0x06, 0xc3}, 7},
    {"jumps into its own",
     {0x48, 0x89, 0xf8, 0x48, 0x85, 0xf6, 0x75, 0xfb, 0xc3},
     9},
    {"overwritten by a patch",
     {0xe9, 1,    0,    0,    0,    0x90, 0xc3, 0xc3, 0xc3, 0xc3,
      0xc3, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3},
     20},
};

Test(relocate, what_cannot_be_moved_stays_and_says_why)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        const char *why;

        make_text();
        put(0, refused[i].code, refused[i].size);
        seal();
        why = patched(refused[i].size, true);
        cr_expect(why && strstr(why, refused[i].why), "%zu: %s, not %s", i, why,
                  refused[i].why);
        cr_expect_arr_eq(text, refused[i].code, refused[i].size);
    }
}

Test(relocate, a_long_jump_of_other_code_into_the_middle_is_found)
{
    static const uint8_t jump[] = {0x0f, 0x84};
    int32_t distance = 1 - (512 + 6); /* to the second byte of text */
    const char *why;

    make_text();
    put(0, samples[1].code, samples[1].size);
    put(512, jump, sizeof(jump));
    put(514, &distance, sizeof(distance));
    seal();
    why = patched(samples[1].size, true);
    cr_assert_not_null(why);
    cr_expect(strstr(why, "other code"), "%s", why);
    cr_expect_arr_eq(text, samples[1].code, samples[1].size);
}

Test(relocate, with_threads_only_where_one_instruction_is_replaced)
{
    const char *why;

    nobody_watches();
    make_sample(&samples[1]);
    why = patched(samples[1].size, false);
    cr_assert_not_null(why);
    cr_expect(strstr(why, "threads"), "%s", why);
    cr_expect_arr_eq(text, samples[1].code, samples[1].size);
    make_sample(&samples[0]);
    cr_assert_null(patched(samples[0].size, false));
    cr_expect_eq(call(20, 22), 42);
}

Test(relocate, what_is_out_of_reach_is_refused)
{
    struct arch_moved moved;
    uint8_t out[ARCH_MOVED_MAX];
    const char *why;

    make_sample(&samples[5]);
    why = arch_move(text, samples[5].size, out,
                    (uintptr_t)text + ((uintptr_t)3 << 31), &moved);
    cr_assert_not_null(why);
    cr_expect(strstr(why, "reach"), "%s", why);
}

Test(relocate, no_page_is_writable_and_executable)
{
    char line[512];
    FILE *maps;

    make_sample(&samples[1]);
    nobody_watches();
    cr_assert_null(patched(samples[1].size, true));
    maps = fopen("/proc/self/maps", "r");
    cr_assert_not_null(maps);
    while (fgets(line, sizeof(line), maps))
        cr_expect_not(strstr(line, "rwx"), "%s", line);
    fclose(maps);
}
