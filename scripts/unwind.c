/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libunwind as for a remote process, whose memory is the copy of the stack
 * and, for what cannot be written to, the modules' files.
 */
#include "unwind.h"

#include <libunwind-x86_64.h>
#include <string.h>

#include "symbols.h"
#include "unwind_file.h"
#include "unwind_space.h"

/* In no header, but there for those who have tables of their own. */
extern int UNW_OBJ(dwarf_search_unwind_table)(unw_addr_space_t as,
                                              unw_word_t ip,
                                              unw_dyn_info_t *di,
                                              unw_proc_info_t *pi,
                                              int need_unwind_info, void *arg);

struct stack {
    struct trace *trace;
    uint64_t ticks;
    const struct trace_stack *registers;
    const uint8_t *memory;
    const struct trace_segment *segment; /* of the last address looked up */
    const struct unwind_file *file;      /* its; NULL: none that fits */
    bool describing;                     /* libunwind reads tables */
    bool failed;                         /* to find what describes the code */
    enum unwind_end why;
    bool beyond; /* some memory was wanted that is not there */
};

static bool find_segment(struct stack *s, uint64_t address)
{
    if (s->segment && address >= s->segment->start &&
        address < s->segment->end)
        return true;
    s->segment = trace_segment(s->trace, address, s->ticks);
    s->file = NULL;
    if (s->segment)
        s->file = unwind_file_of(s->segment,
                                 trace_realtime(s->trace, s->segment->loaded));
    return s->segment;
}

static int find_proc_info(unw_addr_space_t as, unw_word_t ip,
                          unw_proc_info_t *pi, int need, void *arg)
{
    struct stack *s = arg;
    unw_dyn_info_t di = {.format = UNW_INFO_FORMAT_REMOTE_TABLE};
    int ret = -UNW_ENOINFO;

    s->why = UNWIND_NO_MODULE;
    if (find_segment(s, ip)) {
        s->why = UNWIND_NO_TABLE;
        di.start_ip = s->segment->start;
        di.end_ip = s->segment->end;
        if (s->file && s->file->header) {
            di.u.rti.segbase = s->segment->bias + s->file->header;
            di.u.rti.table_data = s->segment->bias + s->file->table;
            /* in words; a pair is one */
            di.u.rti.table_len = s->file->entries;
            s->describing = true;
            ret = UNW_OBJ(dwarf_search_unwind_table)(as, ip, &di, pi, need,
                                                     arg);
            s->describing = false;
        }
    }
    s->failed |= ret < 0;
    return ret;
}

static void put_unwind_info(unw_addr_space_t as, unw_proc_info_t *pi,
                            void *arg)
{
    (void)as;
    (void)pi;
    (void)arg;
}

static int no_dyn_info(unw_addr_space_t as, unw_word_t *at, void *arg)
{
    (void)as;
    (void)at;
    (void)arg;
    return -UNW_ENOINFO;
}

/* A word at the edge of a segment has what there is of it. */
static bool read_file(struct stack *s, unw_word_t address, unw_word_t *value)
{
    uint64_t at = address - s->segment->bias;
    const void *whole = unwind_file_at(s->file, at, sizeof(*value));

    *value = 0;
    if (whole) {
        memcpy(value, whole, sizeof(*value));
        return true;
    }
    for (size_t i = 0; i < sizeof(*value); i++) {
        const void *byte = unwind_file_at(s->file, at + i, 1);

        if (byte)
            memcpy((char *)value + i, byte, 1);
        else if (!i)
            return false;
    }
    return true;
}

static int access_mem(unw_addr_space_t as, unw_word_t address,
                      unw_word_t *value, int write, void *arg)
{
    struct stack *s = arg;
    uint64_t at = address - s->registers->rsp;

    (void)as;
    if (write)
        return -UNW_EINVAL;
    if (at < s->registers->bytes &&
        s->registers->bytes - at >= sizeof(*value)) {
        memcpy(value, s->memory + at, sizeof(*value));
        return 0;
    }
    if (find_segment(s, address) && s->file && read_file(s, address, value))
        return 0;
    /* Where code has cleanups (C++), its table names the personality routine
     * by a word that the loader writes. libunwind wants that word for all
     * code, and uses it when it throws, which nobody does here. */
    if (s->describing && s->segment) {
        *value = 0;
        return 0;
    }
    s->beyond = true;
    return -UNW_EINVAL;
}

static int access_reg(unw_addr_space_t as, unw_regnum_t reg,
                      unw_word_t *value, int write, void *arg)
{
    const struct trace_stack *r = ((struct stack *)arg)->registers;

    (void)as;
    if (write)
        return -UNW_EREADONLYREG;
    switch (reg) {
    case UNW_X86_64_RIP: *value = r->rip; return 0;
    case UNW_X86_64_RSP: *value = r->rsp; return 0;
    case UNW_X86_64_RBP: *value = r->rbp; return 0;
    case UNW_X86_64_RBX: *value = r->rbx; return 0;
    case UNW_X86_64_R12: *value = r->r12; return 0;
    case UNW_X86_64_R13: *value = r->r13; return 0;
    case UNW_X86_64_R14: *value = r->r14; return 0;
    case UNW_X86_64_R15: *value = r->r15; return 0;
    default: return -UNW_EBADREG;
    }
}

static int no_fpreg(unw_addr_space_t as, unw_regnum_t reg, unw_fpreg_t *value,
                    int write, void *arg)
{
    (void)as;
    (void)reg;
    (void)value;
    (void)write;
    (void)arg;
    return -UNW_EBADREG;
}

static int no_resume(unw_addr_space_t as, unw_cursor_t *cursor, void *arg)
{
    (void)as;
    (void)cursor;
    (void)arg;
    return -UNW_EINVAL;
}

static int no_name(unw_addr_space_t as, unw_word_t address, char *name,
                   size_t room, unw_word_t *offset, void *arg)
{
    (void)as;
    (void)address;
    (void)name;
    (void)room;
    (void)offset;
    (void)arg;
    return -UNW_ENOINFO;
}

static unw_accessors_t accessors = {
    .find_proc_info = find_proc_info,
    .put_unwind_info = put_unwind_info,
    .get_dyn_info_list_addr = no_dyn_info,
    .access_mem = access_mem,
    .access_reg = access_reg,
    .access_fpreg = no_fpreg,
    .resume = no_resume,
    .get_proc_name = no_name,
};

/* exact: pc is an instruction that was interrupted, not behind a call. */
static void frame_set(struct stack *s, struct frame *frame, uint64_t pc,
                      bool exact)
{
    uint64_t inside = exact ? pc : pc - 1;

    memset(frame, 0, sizeof(*frame));
    frame->pc = pc;
    if (!find_segment(s, inside))
        return;
    frame->segment = s->segment;
    frame->offset = pc - s->segment->bias;
    if (s->file)
        frame->symbol = symbols_place(s->segment->name,
                                      inside - s->segment->bias,
                                      &frame->symbol_offset);
    if (frame->symbol && !exact)
        frame->symbol_offset++;
}

/*
 * One step. Where no table describes the code libunwind goes on by guessing
 * frame pointers: what it says then is not taken.
 */
static bool step(struct stack *s, unw_cursor_t *cursor, enum unwind_end *end)
{
    int ret;

    s->failed = false;
    s->beyond = false;
    ret = unw_step(cursor);
    if (s->failed)
        *end = s->why;
    else if (ret > 0)
        return true;
    else if (!ret)
        *end = UNWIND_WHOLE;
    else
        *end = s->beyond ? UNWIND_CUT : UNWIND_NO_TABLE;
    return false;
}

/* False: what was remembered of the code there was of another module. */
static bool walk(struct stack *s, struct unwind_space *space,
                 struct frame *frames, size_t *count, enum unwind_end *end)
{
    const struct trace_segment *lapse; /* while we are in it */
    unw_cursor_t cursor;
    unw_word_t pc;
    bool exact = true;
    size_t n = 0;

    *count = 0;
    *end = UNWIND_NO_TABLE;
    lapse = trace_segment(s->trace, s->registers->rip, s->ticks);
    if (unw_init_remote(&cursor, space->space, s))
        return true;
    do {
        *end = UNWIND_WHOLE;
        if (unw_get_reg(&cursor, UNW_REG_IP, &pc) || !pc)
            break;
        *end = UNWIND_CUT;
        if (n == UNWIND_FRAMES)
            break;
        exact |= unw_is_signal_frame(&cursor) > 0;
        frame_set(s, &frames[n], pc, exact);
        if (!unwind_space_same(space, pc, frames[n].segment))
            return false;
        if (!lapse || frames[n].segment != lapse) {
            *count = ++n;
            lapse = NULL;
        }
        exact = unw_is_signal_frame(&cursor) > 0;
    } while (step(s, &cursor, end));
    return true;
}

size_t unwind(struct trace *t, const struct trace_record *release,
              struct frame frames[UNWIND_FRAMES], enum unwind_end *end)
{
    struct stack s = {.trace = t, .ticks = release->ticks};
    struct unwind_space *space;
    size_t n = 0;

    *end = UNWIND_NO_STACK;
    s.registers = trace_stack_of(release, &s.memory);
    if (!s.registers)
        return 0;
    space = unwind_space_of(t, &accessors);
    if (space && !walk(&s, space, frames, &n, end))
        walk(&s, space, frames, &n, end);
    return n;
}

void unwind_forget(struct trace *t)
{
    unwind_space_free(t);
}

void unwind_free(void)
{
    unwind_space_free(NULL);
    unwind_files_free();
}
