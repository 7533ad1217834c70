/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The trace of a process: the format of its file, which lapse-trace(5)
 * describes for those who read it elsewhere. Shared by the library, which
 * writes it, and the lapse command, which reads it, perhaps while the program
 * runs. Little endian, no pointers, every field at its natural place.
 *
 *     header | event types | segments | ring heads | ring 0 | ring 1 | ...
 *
 * A ring is written by one thread at a time and never waits for a reader: it
 * overwrites. It is cut into blocks, no record crosses the end of a block, so
 * that a reader who was overtaken goes on at the next block. Records are
 * multiples of 32 bytes.
 *
 * Positions count bytes since the ring was new; position p lies at byte
 * p % ring_bytes. A writer moves `begin` to behind what it is going to write,
 * writes, then moves `end` there. Invariant R1: the bytes of [p, q) are whole,
 * and not being written, if p + ring_bytes >= begin and q <= end, both read
 * after the bytes were copied (begin) and before (end). After SIGKILL the same
 * holds of what the last writer left half written.
 */
#ifndef LAPSE_TRACE_FILE_H
#define LAPSE_TRACE_FILE_H

#include <stdint.h>

#define TRACE_MAGIC 0x31636172745f6c6cull /* "ll_trac1" */
#define TRACE_VERSION 1
#define TRACE_RINGS 1024 /* one for each slot of a release in flight */
#define TRACE_BLOCKS 8   /* of a ring */
#define TRACE_TYPES 256
#define TRACE_SEGMENT_BYTES (1u << 20)
#define TRACE_STACK_KB_MAX 64

struct trace_clock {
    uint64_t ticks;     /* what records have as their time */
    uint64_t monotonic; /* CLOCK_MONOTONIC at that moment, in ns */
    uint64_t realtime;  /* CLOCK_REALTIME, in ns */
};

struct trace_header {
    uint64_t magic; /* stored last: the rest is there */
    uint32_t version;
    uint32_t header_bytes; /* sizeof(struct trace_header) */
    uint64_t file_bytes;
    uint64_t types_at; /* byte in the file; TRACE_TYPES of trace_type */
    uint64_t segments_at;
    uint64_t heads_at; /* `rings` of trace_head */
    uint64_t rings_at; /* page-aligned, as is ring_bytes */
    uint64_t ring_bytes;
    uint32_t rings;
    uint32_t block_bytes; /* ring_bytes / TRACE_BLOCKS */
    uint32_t types;       /* entries given away; see trace_type.ready */
    uint32_t stack_bytes; /* copied at a release, at most; 0: none */
    uint64_t segments_len; /* bytes of the segment area in use */
    uint64_t segments_lost; /* found no room there */
    uint64_t epoch; /* times that modules came or went */
    uint64_t lost;  /* events for which there was no ring: none of them is in
                       the file; records overwritten are counted by their
                       numbers instead */
    uint64_t stackless; /* releases whose stack could not be copied */
    uint32_t pid, ppid;
    uint32_t ended; /* 1: the process came to its end by exit() */
    uint32_t spare;
    struct trace_clock start, stop; /* stop: zero unless ended */
    char name[32];   /* as in /proc/PID/comm */
    char boot[40];   /* boot_id of the kernel: of which boot ticks are */
    char program[512]; /* its file */
    char arguments[512]; /* of the command, a blank between; cut */
};

/* An event type of the program's own. */
struct trace_type {
    uint32_t ready; /* 1: the rest is there */
    uint32_t spare;
    char name[64];
    char layout[184]; /* what its bytes are, or "": lapse_event_register(3) */
};

/* A module that is, or was, loaded. Variable: the name follows. */
struct trace_segment {
    uint32_t bytes; /* of this entry, a multiple of 8 */
    uint8_t build_id_len;
    uint8_t build_id[32];
    uint8_t spare[3];
    uint64_t bias;       /* address in memory = address in the file + bias */
    uint64_t start, end; /* in memory */
    uint64_t loaded;     /* ticks; 0: at the start */
    uint64_t unloaded;   /* ticks; 0: it is there */
    char name[];         /* of its file, 0-terminated */
};

struct trace_head {
    uint64_t begin, end; /* positions: R1 */
    uint64_t next;       /* number of the record to come */
    uint64_t ready;      /* bytes of the ring that memory was got for */
    uint32_t off;        /* enum trace_off */
    uint32_t spare[7];
};

enum trace_off {
    TRACE_ON,
    TRACE_FULL,  /* no memory for more of it: what is there can be read */
    TRACE_FORKED /* a child's whose parent forked in the middle of a record,
                    and not used since: not to be read */
};

enum trace_kind {
    TRACE_PAD = 1,  /* nothing, up to the end of the block; has no number */
    TRACE_CLOCK,    /* struct trace_clock_record, first in a block; no number */
    TRACE_RELEASE,  /* struct trace_release: about to be done */
    TRACE_PUBLISH,  /* struct trace_told: a subscriber is to be told */
    TRACE_DELIVER,  /* struct trace_told: a subscriber was told */
    TRACE_OVERFLOW, /* struct trace_told: its records are lost */
    TRACE_WATCH,    /* struct trace_told */
    TRACE_UNWATCH,  /* struct trace_told */
    TRACE_USER      /* struct trace_user, and data */
};

/* What each record begins with. */
struct trace_record {
    uint32_t bytes; /* of this record, a multiple of 32 */
    uint16_t kind;  /* enum trace_kind */
    uint16_t flags;
    uint32_t tid;
    uint32_t turn; /* of PUBLISH and RELEASE: the same for one release, next
                      to each other in one ring */
    uint64_t number; /* of this ring, from 0, without gaps */
    uint64_t ticks;
};

struct trace_clock_record {
    struct trace_record head;
    uint64_t monotonic;
    uint64_t spare[3];
};

#define TRACE_HAS_STACK 0x1u   /* flag of RELEASE: a trace_stack follows */
#define TRACE_STACK_LOST 0x2u  /* it should, and could not be copied */
#define TRACE_EVENT_OPEN 0x4u  /* flag of DELIVER */
#define TRACE_INLINE 0x8u      /* flag of PUBLISH: a handler is called */
struct trace_release {
    struct trace_record head;
    uint64_t start, end; /* start 0: where is not known, or in more places
                            than one, and end says how many bytes */
    uint64_t pc;         /* the return address into who called */
    uint8_t path;        /* enum lapse_path */
    uint8_t reason;      /* enum lapse_reason */
    uint8_t inside;      /* enum inside: 1 allocator, 2 loader, 3 libc */
    uint8_t spare[5];
};

/* Registers at some instruction of a hook, and the stack from rsp upward.
 * Unwinding begins in the library itself. */
struct trace_stack {
    uint64_t rip, rsp, rbp, rbx, r12, r13, r14, r15;
    uint64_t bytes; /* that follow: memory from rsp on; a multiple of 8 */
};

struct trace_told {
    struct trace_record head;
    uint64_t start, end;
    uint64_t seq; /* lapse_event.seq, or 0 */
    uint32_t subscriber; /* 0 to 63 */
    uint32_t reason;
};

struct trace_user {
    struct trace_record head;
    uint32_t type; /* index into the event types */
    uint32_t len;  /* bytes of data that follow */
};

#endif
