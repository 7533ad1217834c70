/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Traces made by hand, for tests of who reads them: a writer as the comment in
 * shim/trace_file.h describes it, which shares no code with the library's.
 */
#ifndef LAPSE_TESTS_TRACE_MAKER_H
#define LAPSE_TESTS_TRACE_MAKER_H

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shim/trace_file.h"

#define MAKER_DATA 4096
#define MAKER_RING ((uint64_t)32768)
#define MAKER_BLOCK (MAKER_RING / TRACE_BLOCKS)

struct maker {
    uint8_t *file;
    struct trace_header *header;
    struct trace_head *heads;
    uint64_t bytes;
};

static inline void *maker_at(struct maker *m, unsigned ring, uint64_t position)
{
    return m->file + m->header->rings_at + ring * m->header->ring_bytes +
           position % m->header->ring_bytes;
}

/* path: a file that is there, as by mkstemp(). */
static inline struct maker maker_open(const char *path, unsigned rings)
{
    struct trace_header h = {.version = TRACE_VERSION,
                             .header_bytes = sizeof(h),
                             .ring_bytes = MAKER_RING,
                             .rings = rings,
                             .block_bytes = MAKER_BLOCK,
                             .pid = 4242,
                             .start = {1000, 500, 1000000},
                             .name = "made",
                             .boot = "none",
                             .program = "/made",
                             .arguments = "made by hand"};
    struct maker m = {0};
    int fd = open(path, O_RDWR | O_TRUNC);

    h.types_at = 4096;
    h.segments_at = h.types_at + TRACE_TYPES * sizeof(struct trace_type);
    h.heads_at = h.segments_at + TRACE_SEGMENT_BYTES;
    h.rings_at = (h.heads_at + rings * sizeof(struct trace_head) + 4095) &
                 ~(uint64_t)4095;
    h.file_bytes = m.bytes = h.rings_at + rings * h.ring_bytes;
    if (fd < 0 || ftruncate(fd, (off_t)m.bytes))
        abort();
    m.file = mmap(NULL, m.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (m.file == MAP_FAILED)
        abort();
    close(fd);
    m.header = (void *)m.file;
    *m.header = h;
    m.heads = (void *)(m.file + h.heads_at);
    __atomic_store_n(&m.header->magic, TRACE_MAGIC, __ATOMIC_RELEASE);
    return m;
}

static inline void maker_close(struct maker *m)
{
    munmap(m->file, m->bytes);
}

static inline void maker_put(void *to, const void *from, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes / 8; i++)
        __atomic_store_n((uint64_t *)to + i, ((const uint64_t *)from)[i],
                         __ATOMIC_RELAXED);
}

/* Up to the middle of writing: the record is there, but not said to be. */
static inline void maker_begin(struct maker *m, unsigned ring, const void *what,
                               uint64_t bytes)
{
    struct trace_head *head = &m->heads[ring];
    uint64_t at = head->end;

    __atomic_store_n(&head->begin, at + bytes, __ATOMIC_RELAXED);
    /* pairs with the reader's fence between the bytes and `begin` */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    maker_put(maker_at(m, ring, at), what, bytes);
}

static inline void maker_raw(struct maker *m, unsigned ring, const void *what,
                             uint64_t bytes)
{
    maker_begin(m, ring, what, bytes);
    __atomic_store_n(&m->heads[ring].end, m->heads[ring].end + bytes,
                     __ATOMIC_RELEASE);
}

/* What comes before a record of so many bytes: padding, a clock. */
static inline void maker_room(struct maker *m, unsigned ring, uint64_t ticks,
                              uint64_t bytes)
{
    uint64_t left = MAKER_BLOCK - m->heads[ring].end % MAKER_BLOCK;
    struct trace_clock_record clock = {
        .head = {.bytes = sizeof(clock), .kind = TRACE_CLOCK, .ticks = ticks},
        .monotonic = ticks / 2};

    if (left < bytes) {
        uint64_t pad[MAKER_BLOCK / 8] = {left | (uint64_t)TRACE_PAD << 32};

        maker_raw(m, ring, pad, left);
    }
    if (m->heads[ring].end % MAKER_BLOCK == 0)
        maker_raw(m, ring, &clock, sizeof(clock));
}

/* The record gets the next number. */
static inline void maker_record(struct maker *m, unsigned ring,
                                struct trace_record *record)
{
    record->number = m->heads[ring].next++;
    maker_room(m, ring, record->ticks, record->bytes);
    maker_raw(m, ring, record, record->bytes);
}

static inline void maker_release(struct maker *m, unsigned ring,
                                 uint64_t ticks, uint64_t start,
                                 uint64_t end)
{
    struct trace_release r = {.head = {.bytes = sizeof(r),
                                       .kind = TRACE_RELEASE,
                                       .tid = 4243,
                                       .ticks = ticks},
                              .start = start,
                              .end = end,
                              .pc = 0x401000};

    maker_record(m, ring, &r.head);
}

/* An event whose bytes follow from its number: see maker_check_user(). */
static inline void maker_user(struct maker *m, unsigned ring, uint64_t ticks,
                              uint32_t len)
{
    uint64_t room[(sizeof(struct trace_user) + MAKER_DATA) / 8];
    struct trace_user *u = (void *)room;

    *u = (struct trace_user){
        .head = {.bytes = (uint32_t)sizeof(*u) + ((len + 7) & ~7u),
                 .kind = TRACE_USER,
                 .tid = ring,
                 .ticks = ticks},
        .len = len};
    memset(u + 1, 0, (len + 7) & ~7u);
    for (uint32_t i = 0; i < len; i++)
        ((uint8_t *)(u + 1))[i] = (uint8_t)(m->heads[ring].next * 31 + i);
    maker_record(m, ring, &u->head);
}

/* 0: not what maker_user() wrote. */
static inline int maker_check_user(const struct trace_record *r)
{
    const struct trace_user *u = (const void *)r;

    if (r->kind != TRACE_USER ||
        r->bytes != sizeof(*u) + ((u->len + 7) & ~7u))
        return 0;
    for (uint32_t i = 0; i < u->len; i++)
        if (((const uint8_t *)(u + 1))[i] != (uint8_t)(r->number * 31 + i))
            return 0;
    return 1;
}

#endif
