/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Detours: what the entry of a patched free() jumps to. Templates, copied to
 * near the function; the moved instructions and the three words at the end
 * are filled in there. Reached as the function is, arguments and return
 * address in place; rax and r8 to r11 are nobody's, since it takes four
 * arguments. (A caller in the same file, whom the compiler told that the
 * function keeps one of those, would be wrong about the libc functions that
 * it calls, too.)
 *
 * Nobody wants FREE, or nobody near: three instructions, then the function's
 * own. The high end comes first, as it is 0 when there is nobody; NULL is
 * below all that is watched, and handled by the function.
 */
#include "hooks/arch.h"

        .macro  begin name
        .balign 64
        .globl  \name
        .hidden \name
\name:
        mov     .Lrange_\name(%rip), %r11
        cmp     8(%r11), %rdi
        jb      .Lcheck_\name
        nopl    (%rax)
        .org    \name + ARCH_DETOUR_MOVED, 0xcc
.Lmoved_\name:
        .org    \name + ARCH_DETOUR_MOVED + ARCH_MOVED_MAX, 0xcc
.Lcheck_\name:
        test    %rdi, %rdi
        je      .Lmoved_\name
        .endm

        .macro  finish name
.Lhook_\name:
        mov     .Largument_\name(%rip), %r8
        mov     %rsp, %r9
        jmp     *.Lto_\name(%rip)
        .org    \name + ARCH_DETOUR - ARCH_DETOUR_WORDS, 0xcc
.Lrange_\name:    .quad 0
.Largument_\name: .quad 0
.Lto_\name:       .quad 0
        .endm

        .section .rodata
        begin   arch_detour_plain
        finish  arch_detour_plain

/*
 * The word in front of the block is its length, so its end is known here: is
 * it above the low end of all that is watched, and is one of the two granules
 * marked that it is in? One that is in more than two goes to the hook.
 */
        begin   arch_detour_header
        mov     -8(%rdi), %rax
        and     $-8, %rax
        lea     -1(%rdi,%rax), %rax
        cmp     (%r11), %rax
        jb      .Lmoved_arch_detour_header
        shr     $ARCH_GRANULE_SHIFT, %rax
        mov     %rdi, %r8
        shr     $ARCH_GRANULE_SHIFT, %r8
        mov     %rax, %r9
        sub     %r8, %r9
        cmp     $1, %r9
        ja      .Lhook_arch_detour_header
        movzwl  %ax, %eax
        movzwl  %r8w, %r8d
        movzbl  16(%r11,%rax), %eax
        or      16(%r11,%r8), %al
        je      .Lmoved_arch_detour_header
        finish  arch_detour_header

        .section .note.GNU-stack, "", @progbits
