/* SPDX-License-Identifier: BSD-3-Clause */
/* Entries: what a site's function must find as the kernel would leave it. */
#include "hooks/arch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/fake_hooks.h"

#define PAGE 4096
#define RED_ZONE 128

/* All general registers but rsp, before and after. In the order of asm. */
struct registers {
    uint64_t rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13,
        r14, r15;
    uint64_t skew;  /* in: how far rsp is moved from where it is */
    uint64_t rsp;   /* out: at the call, below the return address */
    uint64_t after; /* out: when it came back */
};

/* Load all, call code with a filled red zone below it, store all. */
void call_with(struct registers *r, const uint8_t *code);
__asm__("call_with:\n"
        "   push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
        "   mov %rsp, saved_rsp(%rip); mov %rdi, saved_r(%rip)\n"
        "   mov %rsi, saved_code(%rip)\n"
        "   sub 120(%rdi), %rsp\n"
        "   lea -8(%rsp), %rax; mov %rax, 128(%rdi)\n"
        "   mov 0(%rdi), %rax;   mov 8(%rdi), %rbx;  mov 16(%rdi), %rcx\n"
        "   mov 24(%rdi), %rdx;  mov 32(%rdi), %rsi; mov 48(%rdi), %rbp\n"
        "   mov 56(%rdi), %r8;   mov 64(%rdi), %r9;  mov 72(%rdi), %r10\n"
        "   mov 80(%rdi), %r11;  mov 88(%rdi), %r12; mov 96(%rdi), %r13\n"
        "   mov 104(%rdi), %r14; mov 112(%rdi), %r15; mov 40(%rdi), %rdi\n"
        "   call *saved_code(%rip)\n"
        "   push %rdi; mov saved_r(%rip), %rdi; pop 40(%rdi)\n"
        "   mov %rsp, 136(%rdi)\n"
        "   mov %rax, 0(%rdi);   mov %rbx, 8(%rdi);  mov %rcx, 16(%rdi)\n"
        "   mov %rdx, 24(%rdi);  mov %rsi, 32(%rdi); mov %rbp, 48(%rdi)\n"
        "   mov %r8, 56(%rdi);   mov %r9, 64(%rdi);  mov %r10, 72(%rdi)\n"
        "   mov %r11, 80(%rdi);  mov %r12, 88(%rdi); mov %r13, 96(%rdi)\n"
        "   mov %r14, 104(%rdi); mov %r15, 112(%rdi)\n"
        "   mov saved_rsp(%rip), %rsp\n"
        "   pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret\n"
        ".local saved_rsp; .comm saved_rsp, 8\n"
        ".local saved_r; .comm saved_r, 8\n"
        ".local saved_code; .comm saved_code, 8\n");

/*
 * A function with a red zone: writes to all of it, is at its site, and
 * returns in r11 what it reads back there, or'ed together.
 */
static uint8_t *make_site(enum arch_kind kind, hook_body *body)
{
    static const uint8_t fill[] = {0x48, 0xc7, 0x84, 0x24}; /* movq $x,d(rsp) */
    static const uint8_t read[] = {0x4c, 0x0b, 0x9c, 0x24}; /* or d(rsp),r11 */
    uint8_t *text = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *at = text;
    int slot;

    cr_assert_neq(text, MAP_FAILED);
    for (int32_t d = -RED_ZONE; d < 0; d += 8) {
        int32_t value = 1 << ((d + RED_ZONE) / 8);

        at = mempcpy(at, fill, 4);
        at = mempcpy(at, &d, 4);
        at = mempcpy(at, &value, 4);
    }
    slot = arch_slot_take((uintptr_t)at, kind, body);
    cr_assert_geq(slot, 0);
    /* This text may be far from the entries: jump by a stub at its end. */
    arch_stub(text + PAGE - ARCH_STUB, arch_entry(slot));
    arch_site_bytes(at, kind, 11);
    arch_jump(at, (uintptr_t)at, (uintptr_t)text + PAGE - ARCH_STUB);
    at += ARCH_SITE;
    at = mempcpy(at, (uint8_t[]){0x4d, 0x31, 0xdb}, 3); /* xor r11,r11 */
    for (int32_t d = -RED_ZONE; d < 0; d += 8) {
        at = mempcpy(at, read, 4);
        at = mempcpy(at, &d, 4);
    }
    *at = 0xc3;
    cr_assert_eq(mprotect(text, PAGE, PROT_READ | PROT_EXEC), 0);
    return text;
}

static uint8_t *make_function(hook_body *body)
{
    return make_site(body ? ARCH_PLAIN : ARCH_SYSCALL, body);
}

static struct registers numbered(uint64_t skew)
{
    struct registers r;
    uint64_t *words = (uint64_t *)&r;

    for (size_t i = 0; i < 15; i++)
        words[i] = 0x1111111111110000 + i;
    r.skew = skew;
    return r;
}

static void check_kept(const struct registers *was,
                       const struct registers *is)
{
    cr_expect(was->rbx == is->rbx && was->rbp == is->rbp &&
              was->r12 == is->r12 && was->r13 == is->r13 &&
              was->r14 == is->r14 && was->r15 == is->r15);
    cr_expect(was->rdx == is->rdx && was->rsi == is->rsi &&
              was->rdi == is->rdi && was->r8 == is->r8 && was->r9 == is->r9 &&
              was->r10 == is->r10);
    cr_expect_eq(is->after, is->rsp + 8);
    cr_expect_eq(is->r11, 0xffff, "red zone: %lx", is->r11);
}

static void check_arguments(const struct registers *was)
{
    cr_expect(fake_args[0] == (long)was->rdi && fake_args[1] == (long)was->rsi);
    cr_expect(fake_args[2] == (long)was->rdx && fake_args[3] == (long)was->r10);
    cr_expect(fake_args[4] == (long)was->r8 && fake_args[5] == (long)was->r9);
}

/* A body that would fault on a stack that is not aligned. */
static long aligned_body(long a0, long a1, long a2, long a3, long a4, long a5,
                         const uintptr_t *stack)
{
    cr_expect_eq((uintptr_t)__builtin_frame_address(0) % 16, 0);
    return fake_body(a0, a1, a2, a3, a4, a5, stack);
}

Test(arch, entry_keeps_what_a_system_call_keeps)
{
    uint8_t *code = make_function(aligned_body);

    for (uint64_t skew = 0; skew < 64; skew++) { /* also odd stacks */
        struct registers was = numbered(skew), is = was;

        fake_result = -(long)skew;
        call_with(&is, code);
        check_kept(&was, &is);
        check_arguments(&was);
        cr_expect_eq((long)is.rax, fake_result);
        cr_expect_eq((uintptr_t)fake_stack, is.rsp);
    }
}

Test(arch, entry_of_syscall_knows_hooked_numbers_only)
{
    uint8_t *code = make_function(NULL);
    struct registers was = numbered(8), is;

    was.rax = SYS_munmap;
    was.rdi = 1;
    is = was;
    call_with(&is, code);
    cr_expect_eq((long)is.rax, -EINVAL);
    cr_expect_eq(fake_count(LAPSE_PATH_MUNMAP), 1);
    /* what was displaced, mov 8(%rsp),%r9, was done */
    cr_expect_eq(is.r9, *(uint64_t *)(is.rsp + 8));
    was.r9 = is.r9;
    check_kept(&was, &is);
}

Test(arch, entry_of_syscall_passes_the_rest_on)
{
    static const uint64_t unknown[] = {511, 512, 0x7fffffff, 0xffffffff,
                                       (uint64_t)-1};
    uint8_t *code = make_function(NULL);
    struct registers was = numbered(8), is = was;

    is.rax = SYS_getpid;
    call_with(&is, code);
    cr_expect_eq(is.rax, getpid());
    was.r9 = is.r9;
    check_kept(&was, &is);
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        is = was;
        is.rax = unknown[i];
        call_with(&is, code);
        cr_expect_eq((long)is.rax, -ENOSYS, "%lx", unknown[i]);
    }
}

static int take_all(enum arch_kind kind)
{
    int slot, taken;

    for (taken = 0; (slot = arch_slot_take(4096, kind, fake_body)) >= 0;
         taken++)
        cr_assert_eq(arch_entry(slot) % ARCH_SLOT_SIZE, 0);
    return taken;
}

Test(arch, slots_run_out_politely_and_come_back)
{
    cr_expect_eq(take_all(ARCH_PLAIN), ARCH_PLAIN_SLOTS);
    cr_expect_eq(take_all(ARCH_HERE), ARCH_HERE_SLOTS);
    cr_expect_eq(take_all(ARCH_SYSCALL), ARCH_SYSCALL_SLOTS);
    arch_slot_give(3);
    cr_expect_eq(arch_slot_take(4096, ARCH_PLAIN, fake_body), 3);
    cr_expect_eq(take_all(ARCH_PLAIN), 0);
}

Test(arch, entry_of_an_openat_here_loads_its_directory)
{
    uint8_t *code = make_site(ARCH_HERE, fake_body);
    struct registers was = numbered(9), is = was;

    fake_result = 7;
    call_with(&is, code);
    cr_expect_eq(is.rax, 7);
    cr_expect_eq((int)fake_args[0], -100);
    cr_expect_eq((int)is.rdi, -100);
    was.rdi = is.rdi;
    check_kept(&was, &is);
}

Test(arch, sites_are_told_by_what_loads_the_number)
{
    static const struct {
        uint8_t code[ARCH_BEFORE];
        int nr;
        enum arch_kind kind;
    } samples[] = {
        {{[19] = 0xb8, 1, 1, 0, 0}, 257, ARCH_PLAIN},
        {{[19] = 0xb8, 1, 1, 0, 0}, 85, ARCH_NONE},
        {{[11] = 0xb8, 1, 1, 0, 0, 0x48, 0x89, 0xfe, 0xbf, 0x9c, 0xff, 0xff,
          0xff}, 257, ARCH_HERE},
        {{[14] = 0xb8, 0x1d, 1, 0, 0, 0x48, 0x89, 0xf2, 0x31, 0xf6}, 285,
         ARCH_HARMLESS},
        {{[10] = 0xb8, 0x1d, 1, 0, 0, 0x48, 0x89, 0xf2, 0x31, 0xf6}, 285,
         ARCH_STRANGE},
        {{[8] = 0xb8, 2, 0, 0, 0, [19] = 0xb8, 0xca, 0, 0, 0}, 2, ARCH_NONE},
    };

    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++)
        cr_expect_eq(arch_site_kind(samples[i].code + ARCH_BEFORE,
                                    samples[i].nr),
                     samples[i].kind, "%zu", i);
}

Test(arch, empty_functions_are_known)
{
    static uint8_t code[][32] __attribute__((aligned(32))) = {
        {0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f,
         0x40, 0},
        {0xf3, 0x0f, 0x1e, 0xfa, 0xc3, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0,
         0, 0, 0x90},
        {0xc3, 0x90, 0x90, 0x90, 0x55, 0x48},
        {0xcc, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x90},
        {0x55, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90},
    };

    cr_expect_eq(arch_empty(code[0]), code[0]);
    cr_expect_eq(arch_empty(code[1]), code[1] + 4);
    cr_expect_null(arch_empty(code[2]));
    cr_expect_null(arch_empty(code[3]));
    cr_expect_null(arch_empty(code[4]));
    cr_expect_null(arch_empty(code[0] + 1));
}

Test(arch, foreign_jumps_are_known)
{
    static const struct {
        uint8_t code[24];
        size_t size;
    } samples[] = {
        {{0xe9, 1, 0, 0, 0}, 5},
        {{0xf3, 0x0f, 0x1e, 0xfa, 0xe9, 1, 0, 0, 0}, 9},
        {{0xff, 0x25, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, 14},
        {{0xff, 0x25, 9, 0, 0, 0}, 6},
        {{0x49, 0xbb, 1, 2, 3, 4, 5, 6, 7, 8, 0x41, 0xff, 0xe3}, 13},
        {{0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0xe0}, 12},
        {{0xcc}, 1},
        {{0xb8, 11, 0, 0, 0, 0x0f, 0x05}, 0},
        {{0x41, 0x89, 0xca, 0xb8, 9, 0, 0, 0}, 0},
    };
    uintptr_t target;

    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++)
        cr_expect_eq(arch_foreign(samples[i].code, 24, &target),
                     samples[i].size, "%zu", i);
    for (size_t i = 2; i < 6; i++) {
        if (i == 3)
            continue; /* leads through memory elsewhere */
        arch_foreign(samples[i].code, 24, &target);
        cr_expect_eq(target, 0x0807060504030201, "%zu", i);
    }
}
