/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The number of the physical page behind each address. The kernel shows it to
 * root only. It proves nothing for a page that nobody holds: what was
 * given back may come again.
 */
#include <fcntl.h>
#include <unistd.h>

#include "oracle.h"

#define PRESENT (1ull << 63)
#define FRAME ((1ull << 55) - 1)

bool oracle_frames(const char *addr, unsigned pages, uint64_t *frame)
{
    off_t at = (off_t)((uintptr_t)addr / PAGE_BYTES * sizeof(*frame));
    size_t size = pages * sizeof(*frame);
    uint64_t any = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    if (pread(fd, frame, size, at) != (ssize_t)size)
        pages = 0;
    close(fd);
    for (unsigned i = 0; i < pages; i++) {
        frame[i] = frame[i] & PRESENT ? frame[i] & FRAME : 0;
        any |= frame[i];
    }
    return any;
}
