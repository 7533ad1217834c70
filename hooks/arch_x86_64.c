/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * x86-64: decoding (by Zydis), encoding of jumps, the entries' data.
 */
#include "hooks/arch.h"

#include <cpuid.h>
#include <string.h>
#include <sys/syscall.h>

/* As the Makefile compiles Zydis itself. */
#define ZYDIS_STATIC_BUILD
#define ZYCORE_STATIC_BUILD
#define ZYDIS_DISABLE_ENCODER
#define ZYDIS_DISABLE_FORMATTER
#include <Zydis/Decoder.h>

/* Hidden, as entry_x86_64.S defines them: addressed without a GOT. */
extern struct arch_slot arch_slots[ARCH_SLOTS]
    __attribute__((visibility("hidden")));
extern uint8_t arch_nr_index[ARCH_NR_LIMIT]
    __attribute__((visibility("hidden")));
extern const uint8_t arch_entries[] __attribute__((visibility("hidden")));

_Static_assert(sizeof(struct arch_slot) == ARCH_SLOT_BYTES &&
                   offsetof(struct arch_slot, back) == ARCH_SLOT_BACK &&
                   offsetof(struct arch_slot, u) == ARCH_SLOT_BODY,
               "entry_x86_64.S knows struct arch_slot");
_Static_assert(sizeof(struct hook) == 24 && offsetof(struct hook, body) == 16,
               "entry_x86_64.S knows struct hook");

/*
 * The arithmetic flags, told by opcode: Zydis has no tables of them in its
 * minimal build, and a handful of opcodes is all that compilers put behind a
 * system call. Opcodes of the one-byte map.
 */
static enum arch_flags flags_alu(unsigned operation)
{
    /* add or adc sbb and sub xor cmp; adc and sbb read the carry first */
    return operation == 2 || operation == 3 ? ARCH_FLAGS_UNKNOWN
                                            : ARCH_FLAGS_DEAD;
}

static enum arch_flags flags_of(unsigned opcode, unsigned reg)
{
    if (opcode < 0x40 && (opcode & 7) < 6)
        return flags_alu(opcode >> 3);
    switch (opcode) {
    case 0x80 ... 0x83:
        return flags_alu(reg);
    case 0x84: case 0x85: case 0xa8: case 0xa9: /* test */
        return ARCH_FLAGS_DEAD;
    case 0xf6: case 0xf7: /* test, neg; not and mul and div: not seen */
        return reg == 0 || reg == 3 ? ARCH_FLAGS_DEAD : ARCH_FLAGS_UNKNOWN;
    case 0xc2: case 0xc3: /* ret: the ABI has callers expect no flags */
        return ARCH_FLAGS_DEAD;
    case 0x50 ... 0x5f: /* push, pop */
    case 0x63: /* movslq */
    case 0x88 ... 0x8b: case 0xb0 ... 0xbf: case 0xc6: case 0xc7: /* mov */
    case 0x8d: /* lea */
    case 0x90: /* nop */
        return ARCH_FLAGS_KEPT;
    default:
        return ARCH_FLAGS_UNKNOWN;
    }
}

static bool ends_flow(const ZydisDecodedInstruction *insn)
{
    if (insn->opcode_map == ZYDIS_OPCODE_MAP_0F)
        return insn->opcode == 0x0b; /* ud2 */
    if (insn->opcode_map != ZYDIS_OPCODE_MAP_DEFAULT)
        return false;
    switch (insn->opcode) {
    case 0xc2: case 0xc3: /* ret */
    case 0xe9: case 0xeb: /* jmp */
    case 0xcc: case 0xf4: /* int3, hlt */
        return true;
    case 0xff: /* jmp through memory or register */
        return insn->raw.modrm.reg == 4 || insn->raw.modrm.reg == 5;
    default:
        return false;
    }
}

/* Constant once it is made: who decodes is the constructor, or has the
 * loader's lock. */
static const ZydisDecoder *the_decoder(void)
{
    static ZydisDecoder decoder;

    if (decoder.stack_width != ZYDIS_STACK_WIDTH_64)
        ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64,
                         ZYDIS_STACK_WIDTH_64);
    return &decoder;
}

bool arch_decode(const uint8_t *code, size_t size, struct arch_insn *out)
{
    ZydisDecodedInstruction insn;

    if (!ZYAN_SUCCESS(
            ZydisDecoderDecodeInstruction(the_decoder(), NULL, code, size,
                                          &insn)))
        return false;
    out->size = insn.length;
    out->target = 0;
    if (insn.raw.imm[0].is_relative)
        out->target = (uintptr_t)code + insn.length +
                      (uintptr_t)insn.raw.imm[0].value.s;
    out->calls = insn.opcode_map == ZYDIS_OPCODE_MAP_DEFAULT &&
                 insn.opcode == 0xe8;
    out->ends = ends_flow(&insn);
    out->flags = ARCH_FLAGS_UNKNOWN;
    if (insn.encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY) {
        if (insn.opcode_map == ZYDIS_OPCODE_MAP_DEFAULT)
            out->flags = flags_of(insn.opcode, insn.raw.modrm.reg);
        else if (insn.opcode_map == ZYDIS_OPCODE_MAP_0F &&
                 (insn.opcode == 0x1e || insn.opcode == 0x1f))
            out->flags = ARCH_FLAGS_KEPT; /* long nop, endbr64 */
    }
    return true;
}

/* If a relative branch begins here: how long it is, else 0. */
static size_t branch_size(const uint8_t *code)
{
    switch (code[0]) {
    case 0x70 ... 0x7f: case 0xe0 ... 0xe3: case 0xeb: /* jcc, loop, jmp */
        return 2;
    case 0xe8: case 0xe9: /* call, jmp */
        return 5;
    case 0x0f: /* jcc */
        return (code[1] & 0xf0) == 0x80 ? 6 : 0;
    case 0xc7: /* xbegin */
        return code[1] == 0xf8 ? 6 : 0;
    default:
        return 0;
    }
}

bool arch_may_branch(const uint8_t *code, size_t size, uintptr_t from,
                     uintptr_t to)
{
    for (const uint8_t *end = code + size; code + 1 < end; code++) {
        size_t n = branch_size(code);
        int32_t distance;
        uintptr_t target;

        if (!n || n > (size_t)(end - code))
            continue;
        distance = (int8_t)code[1];
        if (n > 2)
            memcpy(&distance, code + n - 4, sizeof(distance));
        target = (uintptr_t)code + n + (uintptr_t)(intptr_t)distance;
        if (target > from && target < to)
            return true;
    }
    return false;
}

void arch_site_bytes(uint8_t out[ARCH_SITE], enum arch_kind kind, int nr)
{
    static const uint8_t load_sixth[] = {
        0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05 /* mov 8(%rsp),%r9 */
    };
    static const uint8_t load_here[] = {
        0xbf, 0x9c, 0xff, 0xff, 0xff, 0x0f, 0x05 /* mov $AT_FDCWD,%edi */
    };
    uint8_t load_nr[] = {0xb8, 0, 0, 0, 0, 0x0f, 0x05}; /* mov $nr,%eax */

    memcpy(load_nr + 1, &nr, sizeof(nr));
    memcpy(out,
           kind == ARCH_SYSCALL ? load_sixth
           : kind == ARCH_HERE  ? load_here
                                : load_nr,
           ARCH_SITE);
}

/* Does mov $nr,%eax end this many bytes before? */
static bool loads(const uint8_t *enter, unsigned before, int nr)
{
    const uint8_t *at = enter - before - 5;

    return at[0] == 0xb8 && !memcmp(at + 1, &nr, sizeof(nr));
}

enum arch_kind arch_site_kind(const uint8_t *enter, int nr)
{
    /* what openat() of AT_FDCWD and posix_fallocate() do behind the load */
    static const uint8_t here[] = {0x48, 0x89, 0xfe, 0xbf, 0x9c,
                                   0xff, 0xff, 0xff};
    static const uint8_t no_mode[] = {0x48, 0x89, 0xf2, 0x31, 0xf6};
    uint32_t other;

    if (loads(enter, 0, nr))
        return ARCH_PLAIN;
    if (nr == SYS_openat && loads(enter, sizeof(here), nr) &&
        !memcmp(enter - sizeof(here), here, sizeof(here)))
        return ARCH_HERE;
    if (nr == SYS_fallocate && loads(enter, sizeof(no_mode), nr) &&
        !memcmp(enter - sizeof(no_mode), no_mode, sizeof(no_mode)))
        return ARCH_HARMLESS;
    for (unsigned before = 0; before + 5 <= ARCH_BEFORE; before++) {
        if (loads(enter, before, nr))
            return ARCH_STRANGE;
        memcpy(&other, enter - before - 4, sizeof(other));
        if (enter[-(int)before - 5] == 0xb8 && other < ARCH_NR_LIMIT)
            break;
    }
    return ARCH_NONE;
}

static uintptr_t relative(const uint8_t *code)
{
    int32_t distance;

    memcpy(&distance, code + 1, sizeof(distance));
    return (uintptr_t)code + 5 + (uintptr_t)(intptr_t)distance;
}

size_t arch_foreign(const uint8_t *code, size_t size, uintptr_t *target)
{
    static const uint8_t endbr[] = {0xf3, 0x0f, 0x1e, 0xfa};
    static const uint8_t nowhere[4];
    size_t at = 0;

    *target = 0;
    if (size < 18)
        return 0;
    if (!memcmp(code, endbr, sizeof(endbr)))
        at = sizeof(endbr);
    code += at;
    if (code[0] == 0xe9) { /* jmp rel32 */
        *target = relative(code);
        return at + 5;
    }
    if (code[0] == 0xff && code[1] == 0x25) { /* jmp *x(%rip) */
        if (memcmp(code + 2, nowhere, sizeof(nowhere)))
            return at + 6;
        memcpy(target, code + 6, sizeof(*target));
        return at + 14;
    }
    if (code[0] == 0xcc) /* int3: a probe or a breakpoint */
        return at + 1;
    if (code[0] == 0x49 && (code[1] & 0xfc) == 0xb8 && code[10] == 0x41 &&
        code[11] == 0xff) { /* mov $x,%r8..%r11; jmp *%r8..%r11 */
        memcpy(target, code + 2, sizeof(*target));
        return at + 13;
    }
    if (code[0] == 0x48 && code[1] == 0xb8 && code[10] == 0xff &&
        code[11] == 0xe0) { /* mov $x,%rax; jmp *%rax */
        memcpy(target, code + 2, sizeof(*target));
        return at + 12;
    }
    return 0;
}

uint8_t *arch_empty(uint8_t *code)
{
    static const uint8_t endbr[] = {0xf3, 0x0f, 0x1e, 0xfa};
    uint8_t *ret, *end;
    struct arch_insn insn;

    if ((uintptr_t)code & 15)
        return NULL;
    ret = memcmp(code, endbr, sizeof(endbr)) ? code : code + sizeof(endbr);
    if (*ret != 0xc3)
        return NULL;
    end = ret + 1;
    while (end < ret + ARCH_WINDOW) {
        /* long or short nops, to the next function */
        if (*end != 0x90 && *end != 0x66 && *end != 0x0f && *end != 0x2e)
            return NULL;
        if (!arch_decode(end, 16, &insn) || insn.flags != ARCH_FLAGS_KEPT)
            return NULL;
        end += insn.size;
    }
    return end <= code + 16 ? ret : NULL;
}

bool arch_begins(const uint8_t *code)
{
    if ((uintptr_t)code & 15)
        return false;
    /* ret, int3, hlt, the end of a nop, of a jump, of a call of no return */
    return code[-1] == 0xc3 || code[-1] == 0xcc || code[-1] == 0xf4 ||
           code[-1] == 0x90 || code[-1] == 0x00 || code[-2] == 0xeb ||
           code[-5] == 0xe9 || code[-5] == 0xe8;
}

bool arch_reaches(uintptr_t from, uintptr_t to)
{
    intptr_t distance = (intptr_t)(to - (from + ARCH_WINDOW));

    return distance == (int32_t)distance;
}

bool arch_jump(uint8_t out[ARCH_WINDOW], uintptr_t from, uintptr_t to)
{
    int32_t distance = (int32_t)(to - (from + ARCH_WINDOW));

    out[0] = 0xe9;
    memcpy(out + 1, &distance, sizeof(distance));
    return arch_reaches(from, to);
}

void arch_stub(uint8_t out[ARCH_STUB], uintptr_t to)
{
    static const uint8_t jump[] = {0xff, 0x25, 0, 0, 0, 0}; /* jmp *0(%rip) */

    memset(out, 0xcc, ARCH_STUB);
    memcpy(out, jump, sizeof(jump));
    memcpy(out + sizeof(jump), &to, sizeof(to));
}

/* The slots of a kind: from [kind] up to [kind + 1]. */
static const int first_slot[] = {
    [ARCH_PLAIN] = 0,
    [ARCH_HERE] = ARCH_PLAIN_SLOTS,
    [ARCH_SYSCALL] = ARCH_PLAIN_SLOTS + ARCH_HERE_SLOTS,
    [ARCH_SYSCALL + 1] = ARCH_SLOTS,
};

int arch_slot_take(uintptr_t site, enum arch_kind kind, hook_body *body)
{
    for (int slot = first_slot[kind]; slot < first_slot[kind + 1]; slot++) {
        if (arch_slots[slot].back)
            continue;
        arch_slots[slot].back = site + ARCH_SITE;
        if (kind != ARCH_SYSCALL) {
            arch_slots[slot].u.body = body;
            return slot;
        }
        arch_slots[slot].u.enter = site + ARCH_WINDOW;
        for (int i = 0; i < HOOK_COUNT; i++)
            if ((unsigned)lapse_hooks[i].nr < ARCH_NR_LIMIT)
                arch_nr_index[lapse_hooks[i].nr] = (uint8_t)(i + 1);
        return slot;
    }
    return -1;
}

void arch_slot_give(int slot)
{
    arch_slots[slot].back = 0;
}

uintptr_t arch_entry(int slot)
{
    uintptr_t first = (uintptr_t)arch_entries;
    int small = first_slot[ARCH_SYSCALL];

    if (slot < small)
        return first + (uintptr_t)slot * ARCH_SLOT_SIZE;
    return first + (uintptr_t)small * ARCH_SLOT_SIZE +
           (uintptr_t)(slot - small) * ARCH_ANY_SIZE;
}

void arch_sync_core(void)
{
    unsigned a, b, c, d;

    __cpuid(0, a, b, c, d); /* serializing */
}
