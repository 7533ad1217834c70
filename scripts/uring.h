/* SPDX-License-Identifier: BSD-3-Clause */
/* io_uring by raw system calls: as much of it as registers and judges need. */
#ifndef URING_H
#define URING_H

#include <linux/io_uring.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct uring {
    int fd;
    char *rings;
    struct io_uring_sqe *sqes;
    struct io_uring_params params;
};

/* 0 or -errno: there may be no io_uring here. */
int uring_open(struct uring *ring);
void uring_close(struct uring *ring);

/* Pin and register; 0 or -errno. Only once, but for buffers taken back. */
int uring_buffers(struct uring *ring, const struct iovec *buffers, unsigned n);
void uring_forget_buffers(struct uring *ring);

/* One request, waited for: its result, or -errno. */
int uring_do(struct uring *ring, const struct io_uring_sqe *request);

#endif
