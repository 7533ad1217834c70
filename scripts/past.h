/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The past: what the traces of some processes tell, in memory, in the order of
 * time and with what belongs together found. `lapse report` shows it.
 *
 *     past_read (files) -> past_take (records) -> past_settle -> past_print,
 *     past_json, past_folded, past_perfetto, past_picture
 *
 * Nothing in a trace is trusted: names may be anything, ranges nonsense.
 */
#ifndef PAST_H
#define PAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lapse.h"
#include "trace.h"

enum {
    PAST_REASONS = LAPSE_REASON_OVERFLOW + 1,
    PAST_SUBSCRIBERS = 64,
    PAST_DEPTH = 256, /* frames of a stack; deeper ones are cut */
};

/* A place in the code, the same one in all processes. Strings are the past's;
 * module NULL: it is not known, and offset is the address itself. */
struct past_frame {
    char *module, *symbol;
    char build_id[65]; /* hexadecimal, "" when not known */
    uint64_t offset;   /* of a caller: the return address */
};

/* Innermost first. */
struct past_stack {
    uint32_t depth;
    bool cut;        /* its outer end is missing */
    bool copied;     /* unwound; else it is the one caller that is known */
    uint32_t caller; /* index into frame[]: who is to be named, see past.c */
    uint32_t *frame; /* indexes into past.frame */
};

struct past_event {
    uint64_t ns;         /* since the first trace began */
    uint64_t start, end; /* end 0: not known */
    uint32_t tid;
    uint8_t kind; /* enum trace_kind */
    uint8_t path, reason, inside;
    uint16_t flags;
    uint16_t subscriber;
    uint32_t module; /* a RELEASE took some of it: index + 1 into past.frame,
                        of which only the module counts */
    union {
        struct {
            uint32_t stack; /* index into past.stack */
            uint32_t hits;  /* subscribers told */
        };
        uint64_t seq;
        struct {
            uint32_t type; /* of an event of the program's own */
            uint32_t len;
        };
    };
    uint64_t data; /* of it: where its bytes begin in past_process.data */
};

/* Of one path, of one caller, of all. */
struct past_sum {
    uint64_t count, bytes, hits;
    uint64_t inside[4]; /* by enum inside */
};

struct past_caller {
    uint32_t frame; /* index into past.frame */
    uint32_t via;   /* the frame that it called; itself: not known */
    uint8_t path;
    struct past_sum sum;
};

/* From WATCH to UNWATCH, or to the end. */
struct past_watch {
    uint64_t start, end;
    uint64_t from, to; /* ns */
    uint32_t subscriber;
    bool open; /* nobody took it back */
};

/* From PUBLISH to DELIVER. */
struct past_wait {
    uint64_t from, to; /* ns */
    uint64_t seq;
    uint64_t start, end; /* bytes */
    uint32_t subscriber;
    uint32_t reason;
    bool told;   /* else `to` is the end, or when its queue overflowed */
    bool called; /* an inline handler: not delivered by anybody */
};

struct past_subscriber {
    uint64_t watches, unwatches, published, called, delivered, open, overflows;
    uint64_t told, untold;      /* of those published */
    uint64_t median, p99, most; /* ns that those told waited */
};

struct past_name {
    char *name;
    uint64_t count;
};

struct past_process {
    struct trace_header head;
    char *file;
    uint64_t begin, last; /* ns of the start of the trace, of its last event */
    uint64_t read, overwritten, damaged;
    uint64_t unread; /* stacks: what copied them is not in its file any more */
    uint64_t complete; /* ns: from then on no ring was overwritten */
    struct past_event *event;
    size_t events, room;
    uint8_t *data;
    size_t data_len, data_room;
    struct past_name *type; /* by index */
    size_t types;
    struct past_ring {
        uint32_t turn;
        uint32_t hits;
        size_t release; /* the last one there; SIZE_MAX: none */
        uint64_t next;  /* number that is expected */
    } ring[TRACE_RINGS];
    /* What past_settle() finds: */
    struct past_sum by[LAPSE_PATH_COUNT][PAST_REASONS];
    struct past_sum sum; /* without FREE, whose bytes are of blocks */
    struct past_caller *caller;
    size_t callers;
    struct past_watch *watch; /* by start */
    uint64_t *watch_reach;    /* the highest end of it and those before */
    size_t watches;
    uint64_t watched_most, watched_last; /* bytes; of each watch anew */
    struct past_wait *wait;
    size_t waits;
    struct past_subscriber subscriber[PAST_SUBSCRIBERS];
};

struct past {
    struct past_process **process;
    size_t processes;
    uint64_t end; /* ns of the last event of all */
    struct past_frame *frame;
    size_t frames;
    struct past_stack *stack;
    size_t stacks;
    struct past_table {
        uint32_t *slot; /* index + 1; 0: free */
        size_t size;
    } by_frame, by_stack;
};

/* Where a file or a directory of traces is read from. False, said: one could
 * not be read. */
bool past_read(struct past *past, const char *path);
void past_free(struct past *past);

/* A process to take records of; NULL: out of memory. `began`: ns. */
struct past_process *past_process_add(struct past *past, const char *file,
                                      const struct trace_header *head,
                                      uint64_t began);
/* The index of a frame (module NULL: not known), or of a stack, innermost
 * first; each is kept once. Dies when memory is out. */
uint32_t past_frame(struct past *past, const char *module, const char *build_id,
                    uint64_t offset, const char *symbol);
/* A frame that had no symbol has this one, which may be NULL. */
void past_frame_call(struct past *past, uint32_t frame, const char *symbol);
uint32_t past_stack(struct past *past, const uint32_t *frames, uint32_t depth,
                    bool copied, bool cut);
/* One record, in the order of its ring. `stack` is of a RELEASE. The event
 * until the next call; NULL: the record makes no sense. */
struct past_event *past_take(struct past_process *process,
                             const struct trace_record *record, unsigned ring,
                             uint64_t ns, uint32_t stack);
/* All were taken: order them, and find what belongs together. */
void past_settle(struct past *past);
void past_settle_watches(struct past_process *process, uint64_t end);
void past_settle_waits(struct past_process *process, uint64_t end);
void past_settle_callers(const struct past *past, struct past_process *process);
/* The watch made last that was open and has some of the range; SIZE_MAX: none
 * had. */
size_t past_meets(const struct past_process *process, uint64_t ns,
                  uint64_t start, uint64_t end);

enum past_by { PAST_BY_COUNT, PAST_BY_BYTES, PAST_BY_HITS };
static inline uint64_t past_value(const struct past_sum *sum, enum past_by by)
{
    return by == PAST_BY_COUNT   ? sum->count
           : by == PAST_BY_BYTES ? sum->bytes
                                 : sum->hits;
}
void past_sort_callers(struct past_process *process, enum past_by by);

static inline uint64_t past_bytes(const struct past_event *event)
{
    return event->end > event->start ? event->end - event->start : 0;
}
/* "munmap", "libc.so.6+0x1234", "0x7f...": of a frame. */
const char *past_frame_name(const struct past_frame *frame, char *room,
                            size_t size);
/* memory, or the end of the program */
void *past_grow(void *old, size_t *room, size_t size);

void past_print(struct past *past, FILE *out, size_t top);
void past_json(struct past *past, FILE *out, size_t top);
void past_folded(const struct past *past, FILE *out, enum past_by by);
void past_perfetto(const struct past *past, FILE *out);
void past_picture(struct past *past, FILE *out, size_t top);

/* For qsort() of pointers to processes: those that release most come first,
 * then those that began first. */
int past_rank(const void *left, const void *right);

#endif
