/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Holds pages in a pipe: vmsplice puts the page itself there, no copy of it.
 * For where there is no io_uring, and for pages of files, of which it
 * registers none.
 */
#include <fcntl.h>
#include <stddef.h>
#include <sys/uio.h>
#include <unistd.h>

#include "oracle.h"

bool oracle_pipe_hold(struct oracle *o)
{
    for (unsigned i = 0; i < o->pages; i++) {
        struct iovec page = {o->addr + (size_t)i * PAGE_BYTES, PAGE_BYTES};

        if (o->held >> i & 1 &&
            vmsplice(o->sink_pipe[1], &page, 1, SPLICE_F_NONBLOCK) !=
                PAGE_BYTES)
            return false;
    }
    return o->held;
}

bool oracle_pipe_read(struct oracle *o, char *content)
{
    return read(o->sink_pipe[0], content, PAGE_BYTES) == PAGE_BYTES;
}
