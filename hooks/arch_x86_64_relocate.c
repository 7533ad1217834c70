/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * x86-64: the beginning of a function, moved elsewhere, and the detour that
 * stands in front of it.
 */
#include "hooks/arch.h"

#include <string.h>

#include "shim/release.h"

/* As the Makefile compiles Zydis itself. */
#define ZYDIS_STATIC_BUILD
#define ZYCORE_STATIC_BUILD
#define ZYDIS_DISABLE_ENCODER
#define ZYDIS_DISABLE_FORMATTER
#include <Zydis/Decoder.h>

#define LONGEST 15 /* bytes of an instruction */
#define ENDBR 4

/* An instruction on its way from one address to another. */
struct move {
    const uint8_t *from;
    uint8_t *out;        /* where it is written ... */
    uintptr_t at;        /* ... in order to run here */
    uintptr_t low, high; /* what is moved with it: no branch may go there */
    ZydisDecodedInstruction insn;
};

static bool fits(intptr_t distance)
{
    return distance == (int32_t)distance;
}

static bool put_distance(uint8_t *out, intptr_t distance)
{
    int32_t d = (int32_t)distance;

    memcpy(out, &d, sizeof(d));
    return fits(distance);
}

static bool is_rip_relative(const ZydisDecodedInstruction *insn)
{
    return insn->raw.modrm.offset && insn->raw.modrm.mod == 0 &&
           insn->raw.modrm.rm == 5;
}

/* A branch: jcc, jmp, call; the short forms become long ones. */
static const char *move_branch(const struct move *m, size_t *size)
{
    const ZydisDecodedInstruction *insn = &m->insn;
    uintptr_t to =
        (uintptr_t)m->from + insn->length + (uintptr_t)insn->raw.imm[0].value.s;
    uint8_t *out = m->out;

    if (insn->operand_width == 16)
        return "a branch of 16 bits is among its first instructions";
    if (to >= m->low && to < m->high)
        return "its first instructions jump among themselves";
    if (insn->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT &&
        (insn->opcode == 0xe8 || insn->opcode == 0xe9 ||
         insn->opcode == 0xeb)) {
        *out++ = insn->opcode == 0xe8 ? 0xe8 : 0xe9;
    } else if ((insn->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT &&
                (insn->opcode & 0xf0) == 0x70) ||
               (insn->opcode_map == ZYDIS_OPCODE_MAP_0F &&
                (insn->opcode & 0xf0) == 0x80)) {
        *out++ = 0x0f;
        *out++ = 0x80 | (insn->opcode & 0x0f);
    } else { /* loop, jrcxz, xbegin: there is no long form, or it is odd */
        return "a branch of a rare kind is among its first instructions";
    }
    *size = (size_t)(out - m->out) + 4;
    if (!put_distance(out, (intptr_t)(to - (m->at + *size))))
        return "its first instructions jump further than their copy can";
    return NULL;
}

static const char *move_one(const struct move *m, size_t *size)
{
    const ZydisDecodedInstruction *insn = &m->insn;

    if (insn->raw.imm[0].is_relative)
        return move_branch(m, size);
    memcpy(m->out, m->from, insn->length);
    *size = insn->length;
    if (!is_rip_relative(insn))
        return NULL;
    if (insn->address_width != 64)
        return "an address of 32 bits is among its first instructions";
    if (!put_distance(m->out + insn->raw.disp.offset,
                      (intptr_t)insn->raw.disp.value +
                          (intptr_t)((uintptr_t)m->from - m->at)))
        return "its first instructions read what their copy cannot reach";
    return NULL;
}

static bool decode(const uint8_t *code, size_t size,
                   ZydisDecodedInstruction *insn)
{
    ZydisDecoder decoder;

    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64,
                     ZYDIS_STACK_WIDTH_64);
    return ZYAN_SUCCESS(
        ZydisDecoderDecodeInstruction(&decoder, NULL, code, size, insn));
}

/* Whole instructions that a jump would cover. */
static const char *measure(const uint8_t *code, size_t size,
                           struct arch_moved *moved)
{
    static const uint8_t endbr[ENDBR] = {0xf3, 0x0f, 0x1e, 0xfa};
    struct arch_insn insn;
    bool ended = false;

    *moved = (struct arch_moved){0};
    /* It stays the first, for who calls through a pointer. */
    if (size >= ENDBR && !memcmp(code, endbr, ENDBR))
        moved->skip = ENDBR;
    while (moved->taken < ARCH_WINDOW) {
        size_t at = moved->skip + moved->taken;

        if (ended || at >= size)
            return "it is shorter than a jump";
        if (!arch_decode(code + at, size - at, &insn))
            return "its first instructions cannot be decoded";
        moved->one = insn.size >= ARCH_WINDOW && !moved->taken;
        moved->taken += insn.size;
        ended = insn.ends;
    }
    return NULL;
}

const char *arch_move(const uint8_t *code, size_t size, uint8_t *out,
                      uintptr_t at, struct arch_moved *moved)
{
    const char *why = measure(code, size, moved);
    size_t used = 0, step = 0;
    struct move m;

    if (why)
        return why;
    m.low = (uintptr_t)code + moved->skip;
    m.high = m.low + moved->taken;
    for (m.from = (const uint8_t *)m.low; m.from < (const uint8_t *)m.high;
         m.from += m.insn.length, used += step) {
        m.out = out + used;
        m.at = at + used;
        if (used + LONGEST + ARCH_WINDOW > ARCH_MOVED_MAX)
            return "its first instructions are too many";
        if (!decode(m.from, LONGEST, &m.insn))
            return "its first instructions cannot be decoded";
        why = move_one(&m, &step);
        if (why)
            return why;
    }
    if (!arch_jump(out + used, at + used, m.high))
        return "it is out of reach of its own copy";
    moved->size = used + ARCH_WINDOW;
    return NULL;
}

/* Opcodes of one byte, or of two by their first; memchr() is quick. */
static void find_opcode(const uint8_t *text, size_t size, uint8_t first,
                        arch_jump_seen *seen, void *arg)
{
    const uint8_t *end = text + size, *p = text;

    while (end - p >= 6 && (p = memchr(p, first, (size_t)(end - p) - 5))) {
        const uint8_t *distance = p + (first == 0x0f ? 2 : 1);
        int32_t d;

        p++;
        if (first == 0x0f && (*p & 0xf0) != 0x80)
            continue;
        memcpy(&d, distance, sizeof(d));
        seen((uintptr_t)distance + 4 + (uintptr_t)(intptr_t)d, arg);
    }
}

void arch_find_jumps(const uint8_t *text, size_t size, arch_jump_seen *seen,
                     void *arg)
{
    find_opcode(text, size, 0xe9, seen, arg); /* jmp */
    find_opcode(text, size, 0x0f, seen, arg); /* jcc */
}

/* In detour_x86_64.S. */
extern const uint8_t arch_detour_plain[ARCH_DETOUR]
    __attribute__((visibility("hidden")));
extern const uint8_t arch_detour_header[ARCH_DETOUR]
    __attribute__((visibility("hidden")));

_Static_assert(ARCH_GRANULE_SHIFT == RELEASE_GRANULE_SHIFT &&
                   offsetof(struct release_free, hull) == 0 &&
                   offsetof(struct release_hull, high) == 8 &&
                   offsetof(struct release_free, near) == 16 &&
                   sizeof(((struct release_free *)0)->near) == 1 << 16,
               "detour_x86_64.S knows struct release_free");

void arch_detour(uint8_t out[ARCH_DETOUR], const struct arch_detour *d)
{
    const uintptr_t words[] = {(uintptr_t)d->watched, (uintptr_t)d->argument,
                               d->hook};

    _Static_assert(sizeof(words) == ARCH_DETOUR_WORDS, "as in the template");
    memcpy(out, d->header ? arch_detour_header : arch_detour_plain,
           ARCH_DETOUR);
    memcpy(out + ARCH_DETOUR - ARCH_DETOUR_WORDS, words, sizeof(words));
}
