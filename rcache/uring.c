/* SPDX-License-Identifier: BSD-3-Clause */
/* Registrar: fixed buffers of an io_uring, by its raw system calls. */
#include <errno.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "lapse_rcache_backends.h"
#include "pieces.h"

#define SLOTS_MOST 16384

struct uring {
    int fd;
    pthread_mutex_t lock; /* of the stack of free slots */
    unsigned slots, n;
    uint32_t free[];
};

static size_t size_for(unsigned slots)
{
    return sizeof(struct uring) + slots * sizeof(uint32_t);
}

/* -errno, or what the kernel returned; errno is kept. */
static int io_uring_register(int fd, unsigned op, const void *arg,
                             unsigned n)
{
    int err = errno;
    int result = (int)syscall(SYS_io_uring_register, fd, op, arg, n);

    if (result < 0)
        result = -errno;
    errno = err;
    return result;
}

/* One buffer into the slot; NULL empties it. */
static int update(struct uring *u, uint32_t slot, void *addr, size_t len)
{
    struct iovec iov = {addr, len};
    struct io_uring_rsrc_update2 up = {.offset = slot,
                                       .data = (uintptr_t)&iov,
                                       .nr = 1};
    int done =
        io_uring_register(u->fd, IORING_REGISTER_BUFFERS_UPDATE, &up,
                          sizeof(up));

    return done < 0 ? done : done == 1 ? 0 : -EIO;
}

static int take_slot(struct uring *u, uint32_t *slot)
{
    int err = -ENOMEM; /* the cache evicts, and asks again */

    pthread_mutex_lock(&u->lock);
    if (u->n) {
        *slot = u->free[--u->n];
        err = 0;
    }
    pthread_mutex_unlock(&u->lock);
    return err;
}

static void give_slot(struct uring *u, uint32_t slot)
{
    pthread_mutex_lock(&u->lock);
    u->free[u->n++] = slot;
    pthread_mutex_unlock(&u->lock);
}

static int uring_register(void *addr, size_t len, unsigned access,
                          void *memory, void *arg)
{
    uint32_t *slot = memory;
    int err = take_slot(arg, slot);

    (void)access;
    if (err)
        return err;
    err = update(arg, *slot, addr, len);
    if (err)
        give_slot(arg, *slot);
    return err;
}

/* Requests in flight keep their pages; the kernel lets go with the last. */
static void uring_deregister(void *addr, size_t len, void *memory, void *arg)
{
    uint32_t *slot = memory;

    (void)addr, (void)len;
    update(arg, *slot, NULL, 0);
    give_slot(arg, *slot);
}

int lapse_rcache_uring_open(int ring_fd, unsigned slots,
                            struct lapse_rcache_ops *ops)
{
    struct io_uring_rsrc_register table = {
        .nr = slots, .flags = IORING_RSRC_REGISTER_SPARSE};
    struct uring *u;
    int err;

    if (!slots || slots > SLOTS_MOST || !ops)
        return -EINVAL;
    u = pieces_map(size_for(slots));
    if (!u)
        return -ENOMEM;
    err = io_uring_register(ring_fd, IORING_REGISTER_BUFFERS2, &table,
                            sizeof(table));
    if (err) {
        pieces_unmap(u, size_for(slots));
        return err;
    }
    u->fd = ring_fd;
    u->slots = slots;
    pthread_mutex_init(&u->lock, NULL);
    while (u->n < slots) {
        u->free[u->n] = slots - 1 - u->n;
        u->n++;
    }
    *ops = (struct lapse_rcache_ops){.size = sizeof(*ops),
                                     .region_bytes = sizeof(uint32_t),
                                     .register_region = uring_register,
                                     .deregister_region = uring_deregister,
                                     .arg = u};
    return 0;
}

void lapse_rcache_uring_close(struct lapse_rcache_ops *ops)
{
    struct uring *u = ops->arg;

    io_uring_register(u->fd, IORING_UNREGISTER_BUFFERS, NULL, 0);
    pthread_mutex_destroy(&u->lock);
    pieces_unmap(u, size_for(u->slots));
    ops->arg = NULL;
}
