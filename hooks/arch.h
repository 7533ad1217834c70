/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Everything that knows the processor. One file behind this header per
 * processor, and one of assembly: what a site looks like, how to decode what
 * is around it, how to jump away from it, and the entries jumped to.
 */
#ifndef LAPSE_ARCH_H
#define LAPSE_ARCH_H

#if !defined(__x86_64__)
#error "this processor is not supported yet: write hooks/arch_CPU.c for it"
#endif

/* The one instruction of a site that is replaced, and the one behind it. */
#define ARCH_WINDOW 5 /* mov $nr,%eax, or what syscall() has in its place */
#define ARCH_ENTER 2  /* syscall */
#define ARCH_SITE (ARCH_WINDOW + ARCH_ENTER)
#define ARCH_STUB 16 /* bytes of a far jump to an entry */

/*
 * Entries, one a site, in .text, so that they have call frame information.
 * Those of one kind come together: of plain sites; of those that load
 * AT_FDCWD behind the system call number; and of those whose number is known
 * only when they are reached: libc's syscall().
 */
#define ARCH_PLAIN_SLOTS 192
#define ARCH_HERE_SLOTS 12
#define ARCH_SYSCALL_SLOTS 12
#define ARCH_SLOTS (ARCH_PLAIN_SLOTS + ARCH_HERE_SLOTS + ARCH_SYSCALL_SLOTS)
#define ARCH_SLOT_SIZE 128 /* bytes of a plain entry */
#define ARCH_ANY_SIZE 256  /* bytes of one of syscall() */
#define ARCH_SLOT_BACK 0   /* offsets in struct arch_slot */
#define ARCH_SLOT_BODY 8
#define ARCH_SLOT_BYTES 16

/* Of a function that is patched at its entry. */
#define ARCH_MOVED_MAX 64     /* bytes of its first instructions, moved */
#define ARCH_DETOUR 192       /* bytes of a detour, those included */
#define ARCH_DETOUR_MOVED 16  /* where they are in it */
#define ARCH_DETOUR_WORDS 24  /* bytes of data at its end */
#define ARCH_GRANULE_SHIFT 16 /* as RELEASE_GRANULE_SHIFT */

#define ARCH_NR_LIMIT 512 /* system call numbers that can be hooked */
/* stack[this], with stack as in hook.h, is the address behind the site. */
#define ARCH_STACK_BACK (-17)

#ifndef __ASSEMBLER__
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hooks/hook.h"

/* What an entry needs to know of its site. */
struct arch_slot {
    uintptr_t back; /* behind the site */
    union {
        hook_body *body;  /* plain */
        uintptr_t enter;  /* syscall(): the site's own syscall instruction */
    } u;
};

/* What decoding has to know of an instruction. */
enum arch_flags {
    ARCH_FLAGS_KEPT,   /* neither reads nor writes the arithmetic flags */
    ARCH_FLAGS_DEAD,   /* overwrites them all, or nobody reads them after */
    ARCH_FLAGS_UNKNOWN /* may read them */
};
struct arch_insn {
    uintptr_t target; /* of a relative branch or call, else 0 */
    size_t size;
    bool calls; /* target is called, not jumped to */
    bool ends;  /* execution does not go on behind it */
    enum arch_flags flags;
};
bool arch_decode(const uint8_t *code, size_t size, struct arch_insn *out);

/*
 * Can a relative branch in this code lead to between from and to (and neither)?
 * Any byte is taken for the begin of one, so that nothing need be decoded: it
 * may say yes wrongly, never no.
 */
bool arch_may_branch(const uint8_t *code, size_t size, uintptr_t from,
                     uintptr_t to);

/* What the instruction is that a site has in its window. */
enum arch_kind {
    ARCH_PLAIN,   /* mov $nr,%eax */
    ARCH_HERE,    /* mov $AT_FDCWD,%edi; the number was loaded before */
    ARCH_SYSCALL, /* the one in syscall() */
    ARCH_NONE,    /* no site of that number */
    ARCH_HARMLESS, /* it has that number, and an argument that does nothing */
    ARCH_STRANGE  /* that number seems to be loaded, in an unknown way */
};

/* The bytes of a site of system call nr, where that is in them. */
void arch_site_bytes(uint8_t out[ARCH_SITE], enum arch_kind kind, int nr);

/*
 * Is this a site of system call nr? enter points at the instruction that
 * enters the kernel; ARCH_BEFORE bytes in front of it can be read.
 */
#define ARCH_BEFORE 24
enum arch_kind arch_site_kind(const uint8_t *enter, int nr);

/*
 * How many bytes at the start of a function, or of the window of its site,
 * are somebody else's jump away from it (0: none there), and where it goes if
 * that can be told (else 0).
 */
size_t arch_foreign(const uint8_t *code, size_t size, uintptr_t *target);

/*
 * If this function does nothing but return: its return instruction, which can
 * be replaced by a jump, for what follows it is only padding. Else NULL.
 */
uint8_t *arch_empty(uint8_t *code);

/* May a function begin here, to judge by what stands before it? */
bool arch_begins(const uint8_t *code);

/* A jump of ARCH_WINDOW bytes; false: out of its reach. */
bool arch_jump(uint8_t out[ARCH_WINDOW], uintptr_t from, uintptr_t to);
void arch_stub(uint8_t out[ARCH_STUB], uintptr_t to);
bool arch_reaches(uintptr_t from, uintptr_t to);

/*
 * Take an entry for the site at this address. body is not used for the site
 * in syscall(), which looks it up in lapse_hooks[]. Returns its slot, or -1
 * when all are taken. A slot may be given back when its site is gone, and
 * nobody can be in its entry. Not thread-safe.
 */
int arch_slot_take(uintptr_t site, enum arch_kind kind, hook_body *body);
void arch_slot_give(int slot);
uintptr_t arch_entry(int slot);

/*
 * The first instructions of a function, as many whole ones as a jump needs,
 * copied to out in order to run at `at`, and behind them a jump to the rest of
 * the function. What they say relative to where they are is put right.
 */
struct arch_moved {
    size_t skip;  /* bytes that stay in front of the jump: endbr64 */
    size_t taken; /* bytes moved, ARCH_WINDOW or more */
    size_t size;  /* bytes of out that were used */
    bool one;     /* the jump covers one instruction: no thread can stand in
                     what it overwrites */
};
/* Returns NULL, or why it cannot be done. out has ARCH_MOVED_MAX bytes. */
const char *arch_move(const uint8_t *code, size_t size, uint8_t *out,
                      uintptr_t at, struct arch_moved *moved);

/* Call seen for the target of whatever looks like a long jump in text. */
typedef void arch_jump_seen(uintptr_t target, void *arg);
void arch_find_jumps(const uint8_t *text, size_t size, arch_jump_seen *seen,
                     void *arg);

/*
 * What a patched function jumps to: goes on with the moved instructions at
 * ARCH_DETOUR_MOVED, unless the first argument, an address of memory, may be
 * about what somebody watches. Then it jumps to hook, which finds the
 * arguments as the function would, argument as the fifth, and the stack
 * pointer at the function's entry as the sixth; it returns to the function's
 * caller. header: the word before the memory is its length, but for 3 bits.
 */
struct release_free;
struct arch_detour {
    const struct release_free *watched; /* shim/release.h */
    const void *argument;
    uintptr_t hook;
    bool header;
};
void arch_detour(uint8_t out[ARCH_DETOUR], const struct arch_detour *d);

/* This thread has forgotten what it prefetched of code it changed since. */
void arch_sync_core(void);

#endif
#endif
