/* SPDX-License-Identifier: BSD-3-Clause */
/* Holds pages as fixed buffers of io_uring, one buffer a page. */
#include <stddef.h>
#include <unistd.h>

#include "oracle.h"

bool oracle_uring_hold(struct oracle *o)
{
    struct iovec buffer[PAGES_MAX];
    unsigned n = 0;

    for (unsigned i = 0; i < o->pages; i++)
        if (o->held >> i & 1) {
            buffer[n].iov_base = o->addr + (size_t)i * PAGE_BYTES;
            buffer[n++].iov_len = PAGE_BYTES;
        }
    return n && !uring_buffers(&o->ring, buffer, n);
}

bool oracle_uring_read(struct oracle *o, unsigned page, char *content)
{
    uint64_t before = o->held & ((1ull << page) - 1);
    struct io_uring_sqe write = {
        .opcode = IORING_OP_WRITE_FIXED,
        .fd = o->sink,
        .addr = (uintptr_t)o->addr + (size_t)page * PAGE_BYTES,
        .len = PAGE_BYTES,
        .off = (uint64_t)page * PAGE_BYTES,
        .buf_index = (uint16_t)__builtin_popcountll(before),
    };

    return uring_do(&o->ring, &write) == PAGE_BYTES &&
           pread(o->sink, content, PAGE_BYTES,
                 (off_t)page * PAGE_BYTES) == PAGE_BYTES;
}
