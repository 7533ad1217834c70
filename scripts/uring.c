/* SPDX-License-Identifier: BSD-3-Clause */
#include "uring.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ENTRIES = 4 };

static size_t rings_size(const struct uring *ring)
{
    const struct io_uring_params *p = &ring->params;
    size_t sq = p->sq_off.array + p->sq_entries * sizeof(unsigned);
    size_t cq = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);

    return sq > cq ? sq : cq;
}

static size_t sqes_size(const struct uring *ring)
{
    return ring->params.sq_entries * sizeof(struct io_uring_sqe);
}

int uring_open(struct uring *ring)
{
    memset(ring, 0, sizeof(*ring));
    ring->fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &ring->params);
    if (ring->fd < 0)
        return -errno;
    if (!(ring->params.features & IORING_FEAT_SINGLE_MMAP)) {
        close(ring->fd);
        return -ENOSYS; /* before Linux 5.4 */
    }
    ring->rings = mmap(NULL, rings_size(ring), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_POPULATE, ring->fd,
                       IORING_OFF_SQ_RING);
    ring->sqes = mmap(NULL, sqes_size(ring), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
    if (ring->rings != MAP_FAILED && ring->sqes != MAP_FAILED)
        return 0;
    uring_close(ring);
    return -ENOMEM;
}

void uring_close(struct uring *ring)
{
    if (ring->rings != MAP_FAILED)
        munmap(ring->rings, rings_size(ring));
    if (ring->sqes != MAP_FAILED)
        munmap(ring->sqes, sqes_size(ring));
    close(ring->fd);
}

int uring_buffers(struct uring *ring, const struct iovec *buffers, unsigned n)
{
    long ret = syscall(SYS_io_uring_register, ring->fd,
                       IORING_REGISTER_BUFFERS, buffers, n);

    return ret < 0 ? -errno : 0;
}

void uring_forget_buffers(struct uring *ring)
{
    syscall(SYS_io_uring_register, ring->fd, IORING_UNREGISTER_BUFFERS, NULL,
            0);
}

int uring_do(struct uring *ring, const struct io_uring_sqe *request)
{
    const struct io_sqring_offsets *sq = &ring->params.sq_off;
    const struct io_cqring_offsets *cq = &ring->params.cq_off;
    unsigned *sq_tail = (unsigned *)(ring->rings + sq->tail);
    unsigned *sq_array = (unsigned *)(ring->rings + sq->array);
    unsigned sq_mask = *(unsigned *)(ring->rings + sq->ring_mask);
    unsigned *cq_head = (unsigned *)(ring->rings + cq->head);
    unsigned *cq_tail = (unsigned *)(ring->rings + cq->tail);
    unsigned cq_mask = *(unsigned *)(ring->rings + cq->ring_mask);
    struct io_uring_cqe *cqes = (struct io_uring_cqe *)(ring->rings + cq->cqes);
    unsigned slot = *sq_tail & sq_mask, head = *cq_head;
    int result;

    ring->sqes[slot] = *request;
    sq_array[slot] = slot;
    /* Release: the kernel, which takes it, sees the request written above. */
    __atomic_store_n(sq_tail, *sq_tail + 1, __ATOMIC_RELEASE);
    while (syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS,
                   NULL, 0) < 0)
        if (errno != EINTR)
            return -errno;
    /* Acquire: with the kernel's release, the completion below is written. */
    if (__atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) == head)
        return -EIO;
    result = cqes[head & cq_mask].res;
    /* Release: the kernel may reuse the entry after we read it. */
    __atomic_store_n(cq_head, head + 1, __ATOMIC_RELEASE);
    return result;
}
