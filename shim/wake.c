/* SPDX-License-Identifier: BSD-3-Clause */
#include "wake.h"

_Atomic uint32_t lapse_drainer_asleep;

void wake_drainer(void)
{
    if (atomic_load_explicit(&lapse_drainer_asleep, memory_order_seq_cst) &&
        atomic_exchange_explicit(&lapse_drainer_asleep, 0,
                                 memory_order_seq_cst))
        futex_wake(&lapse_drainer_asleep, 1);
}

void wake_consumer(struct subscriber *s)
{
    static const uint64_t one = 1;
    int fd;

    /* seq_cst W1: after the push (Q2), as the drainer says that it sleeps
     * before it looks at the queues once more (W2, drain.c): one of the two
     * sees the other. Likewise fd_armed and poll.c (W3). */
    if (atomic_load_explicit(&s->delivery, memory_order_relaxed) ==
        LAPSE_CALLBACK) {
        wake_drainer();
        return;
    }
    if (!atomic_load_explicit(&s->fd_armed, memory_order_seq_cst))
        return;
    fd = atomic_load_explicit(&s->fd, memory_order_acquire);
    /* Still armed if not: a child of vfork() has descriptors of its own, and
     * the parent, whose memory this is, is woken by its next release. */
    if (fd_is_ours(fd) &&
        atomic_exchange_explicit(&s->fd_armed, 0, memory_order_seq_cst))
        sys(SYS_write, fd, &one, sizeof(one));
}
