/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Entries: where a patched site jumps to, and the way back behind it.
 *
 * An entry looks like a function that was called from behind the site: it
 * pushes that address, below the red zone that the site's function may be
 * using, and says so in its call frame information: the CFA is rsp at the
 * site (S), the return address is at S-136. Debuggers and unwinders walk from
 * a hook's body through here into libc's function.
 *
 * Registers are those of a system call: rax, rcx and r11 are free, C keeps
 * rbx, rbp and r12 to r15, and rdi, rsi, rdx, r10, r8 and r9 are kept here. As
 * from the kernel, rcx comes back as the address behind the site. The
 * arithmetic flags are not kept: window.c checked that nobody reads them.
 * Vector and x87 registers are never touched, in the bodies either (G4).
 *
 * Stack, downward from S:    S-128  end of the red zone
 *     S-136 return address   S-144  rbp     S-152..S-192  six registers
 *     then, aligned to 16:   the seventh argument, S itself
 */
#include "hooks/arch.h"

        .hidden lapse_hooks

/* sizeof(struct hook), and where its body is */
#define HOOK_SIZE 24
#define HOOK_BODY 16
#define SMALL_SLOTS (ARCH_PLAIN_SLOTS + ARCH_HERE_SLOTS)
#define ANY_START ARCH_SLOT_SIZE*SMALL_SLOTS

        .macro run slot, body:vararg
        mov     arch_slots+ARCH_SLOT_BYTES*\slot+ARCH_SLOT_BACK(%rip), %rcx
        .cfi_register rip, rcx
        lea     -128(%rsp), %rsp
        .cfi_adjust_cfa_offset 128
        push    %rcx
        .cfi_adjust_cfa_offset 8
        .cfi_offset rip, -136
        push    %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_offset rbp, -144
        mov     %rsp, %rbp
        .cfi_def_cfa_register rbp
        sub     $64, %rsp
        and     $-16, %rsp
        mov     %rdi, -8(%rbp)
        mov     %rsi, -16(%rbp)
        mov     %rdx, -24(%rbp)
        mov     %r10, -32(%rbp)
        mov     %r8, -40(%rbp)
        mov     %r9, -48(%rbp)
        lea     144(%rbp), %rax
        mov     %rax, (%rsp)
        mov     %r10, %rcx
        call    \body
        mov     -8(%rbp), %rdi
        mov     -16(%rbp), %rsi
        mov     -24(%rbp), %rdx
        mov     -32(%rbp), %r10
        mov     -40(%rbp), %r8
        mov     -48(%rbp), %r9
        mov     8(%rbp), %rcx
        .cfi_register rip, rcx
        leave
        .cfi_def_cfa rsp, 136
        .cfi_same_value rbp
        lea     136(%rsp), %rsp
        .cfi_def_cfa_offset 0
        jmp     *%rcx
        .endm

/*
 * On the first instruction the return address is in no register and on no
 * stack: unwinding ends there, rather than going astray.
 */
        .macro begin offset:vararg
        .org    arch_entries + \offset, 0xcc
        .cfi_startproc
        .cfi_def_cfa rsp, 0
        .cfi_undefined rip
        .endm

        .macro plain slot
        begin   ARCH_SLOT_SIZE*\slot
        run     \slot, *arch_slots+ARCH_SLOT_BYTES*\slot+ARCH_SLOT_BODY(%rip)
        .cfi_endproc
        .endm

/* The window's own work first, which is not to load the number. */
        .macro here slot
        begin   ARCH_SLOT_SIZE*\slot
        mov     $-100, %edi
        run     \slot, *arch_slots+ARCH_SLOT_BYTES*\slot+ARCH_SLOT_BODY(%rip)
        .cfi_endproc
        .endm

/*
 * syscall(): any system call may come by, also those that return on another
 * stack, twice, or never. Those that are not ours go on at the site's own
 * syscall instruction, on the stack as it was. Only flags have changed, and
 * rcx and r11, which that instruction will set anyhow.
 */
        .macro any slot
        begin   ANY_START + ARCH_ANY_SIZE*(\slot-SMALL_SLOTS)
        cmp     $ARCH_NR_LIMIT, %eax
        jae     1f
        mov     %eax, %ecx
        lea     arch_nr_index(%rip), %r11
        movzbl  (%r11,%rcx), %ecx
        test    %ecx, %ecx
        jz      1f
        lea     (%rcx,%rcx,2), %ecx
        lea     lapse_hooks+HOOK_BODY-HOOK_SIZE(%rip), %r11
        mov     (%r11,%rcx,8), %r11
        mov     8(%rsp), %r9
        .cfi_remember_state
        run     \slot, *%r11
        .cfi_restore_state
1:      mov     8(%rsp), %r9
        jmp     *arch_slots+ARCH_SLOT_BYTES*\slot+ARCH_SLOT_BODY(%rip)
        .cfi_endproc
        .endm

        .text
        .balign ARCH_SLOT_SIZE
        .globl  arch_entries
        .hidden arch_entries
        .type   arch_entries, @function
arch_entries:
        .set    .Lslot, 0
        .rept   ARCH_PLAIN_SLOTS
        plain   .Lslot
        .set    .Lslot, .Lslot + 1
        .endr
        .rept   ARCH_HERE_SLOTS
        here    .Lslot
        .set    .Lslot, .Lslot + 1
        .endr
        .rept   ARCH_SYSCALL_SLOTS
        any     .Lslot
        .set    .Lslot, .Lslot + 1
        .endr
        .size   arch_entries, . - arch_entries

/* struct arch_slot arch_slots[ARCH_SLOTS] */
        .bss
        .balign 64
        .globl  arch_slots
        .hidden arch_slots
        .type   arch_slots, @object
        .size   arch_slots, ARCH_SLOT_BYTES * ARCH_SLOTS
arch_slots:
        .skip   ARCH_SLOT_BYTES * ARCH_SLOTS

/* uint8_t arch_nr_index[ARCH_NR_LIMIT]: 1 + index in lapse_hooks[], 0: none */
        .globl  arch_nr_index
        .hidden arch_nr_index
        .type   arch_nr_index, @object
        .size   arch_nr_index, ARCH_NR_LIMIT
arch_nr_index:
        .skip   ARCH_NR_LIMIT
        .balign 64 /* no counter of somebody shares a cache line with it */

        .section .note.GNU-stack, "", @progbits
