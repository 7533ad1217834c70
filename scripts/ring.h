/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * As much of an io_uring as lapse-cp and the tests need, by its raw system
 * calls: requests of one thread, submitted and waited for.
 */
#ifndef LAPSE_RING_H
#define LAPSE_RING_H

#include <errno.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct ring {
    int fd;
    unsigned entries, pending; /* pending: queued, not submitted */
    void *memory;
    size_t bytes, sqe_bytes;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
    unsigned *sq_tail, *sq_mask, *sq_array;
    unsigned *cq_head, *cq_tail, *cq_mask;
};

static inline void ring_close(struct ring *r)
{
    if (r->sqes)
        munmap(r->sqes, r->sqe_bytes);
    if (r->memory)
        munmap(r->memory, r->bytes);
    close(r->fd);
}

/* 0 or -errno. */
static inline int ring_open(struct ring *r, unsigned entries)
{
    struct io_uring_params p = {0};
    char *m;

    *r = (struct ring){0};
    r->fd = (int)syscall(SYS_io_uring_setup, entries, &p);
    if (r->fd < 0)
        return -errno;
    r->entries = p.sq_entries;
    r->bytes = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    if (r->bytes < p.sq_off.array + p.sq_entries * sizeof(unsigned))
        r->bytes = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    r->sqe_bytes = p.sq_entries * sizeof(struct io_uring_sqe);
    r->memory = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                     r->fd, IORING_OFF_SQ_RING);
    r->sqes = mmap(NULL, r->sqe_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                   r->fd, IORING_OFF_SQES);
    if (r->memory == MAP_FAILED || r->sqes == MAP_FAILED) {
        close(r->fd);
        return -ENOMEM;
    }
    /* A child shares nothing of it. */
    madvise(r->memory, r->bytes, MADV_DONTFORK);
    madvise(r->sqes, r->sqe_bytes, MADV_DONTFORK);
    m = r->memory;
    r->sq_tail = (unsigned *)(m + p.sq_off.tail);
    r->sq_mask = (unsigned *)(m + p.sq_off.ring_mask);
    r->sq_array = (unsigned *)(m + p.sq_off.array);
    r->cq_head = (unsigned *)(m + p.cq_off.head);
    r->cq_tail = (unsigned *)(m + p.cq_off.tail);
    r->cq_mask = (unsigned *)(m + p.cq_off.ring_mask);
    r->cqes = (struct io_uring_cqe *)(m + p.cq_off.cqes);
    return 0;
}

/* Queue IORING_OP_READ_FIXED or WRITE_FIXED; at most `entries` at a time. */
static inline void ring_queue(struct ring *r, int op, int file, void *addr,
                              unsigned len, uint64_t offset, unsigned buffer,
                              uint64_t data)
{
    unsigned tail = *r->sq_tail, i = tail & *r->sq_mask;

    memset(&r->sqes[i], 0, sizeof(r->sqes[i]));
    r->sqes[i].opcode = (uint8_t)op;
    r->sqes[i].fd = file;
    r->sqes[i].addr = (uintptr_t)addr;
    r->sqes[i].len = len;
    r->sqes[i].off = offset;
    r->sqes[i].buf_index = (uint16_t)buffer;
    r->sqes[i].user_data = data;
    r->sq_array[i] = i;
    __atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_RELEASE);
    r->pending++;
}

/* Submit what is queued, wait for one completion; 0 or -errno. */
static inline int ring_wait(struct ring *r, struct io_uring_cqe *out)
{
    unsigned head = *r->cq_head;

    while (r->pending ||
           head == __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE)) {
        unsigned least =
            head == __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE);
        long n = syscall(SYS_io_uring_enter, r->fd, r->pending, least,
                         IORING_ENTER_GETEVENTS, NULL, 0);

        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return -errno;
        if (n > 0)
            r->pending -= (unsigned)n;
    }
    *out = r->cqes[head & *r->cq_mask];
    __atomic_store_n(r->cq_head, head + 1, __ATOMIC_RELEASE);
    return 0;
}

/* One request, from begin to end: bytes or -errno. */
static inline int ring_do(struct ring *r, int op, int file, void *addr,
                          unsigned len, uint64_t offset, unsigned buffer)
{
    struct io_uring_cqe cqe;
    int err;

    ring_queue(r, op, file, addr, len, offset, buffer, 0);
    err = ring_wait(r, &cqe);
    return err ? err : cqe.res;
}

#endif
