/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The only system calls a hook adds: wake a sleeping drainer, write to an
 * eventfd that somebody waits on; each at most once per sleep.
 */
#ifndef LAPSE_WAKE_H
#define LAPSE_WAKE_H

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

#include "subscriber.h"
#include "sys.h"

/* 1 while the drainer sleeps or is about to: a futex. */
extern _Atomic uint32_t lapse_drainer_asleep;

/* Let the drainer look around, if it sleeps. AS-safe. */
void wake_drainer(void);

/* Something was queued for s. AS-safe. */
void wake_consumer(struct subscriber *s);

/*
 * A program that closes every descriptor, as daemons do, may have a file of
 * its own in the place of an eventfd of ours since: that one is not written
 * to, read or closed (G5). Ours have a mark, the number of a signal that they
 * never send. Two calls, so not proof against a thread that closes it between
 * this and what follows.
 */
#define FD_MARK 64

static inline bool fd_is_ours(int fd)
{
    long mark = fd < 0 ? -EBADF : sys(SYS_fcntl, fd, F_GETSIG);

    /* Refused: no more can be known, and who waits must be woken (G1). */
    return mark == FD_MARK || (mark < 0 && mark != -EBADF);
}

#endif
