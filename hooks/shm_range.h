/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a System V segment is. The one question that a hook cannot answer
 * without a system call of its own; asked only while somebody subscribes.
 */
#ifndef LAPSE_SHM_RANGE_H
#define LAPSE_SHM_RANGE_H

#include <stddef.h>
#include <stdint.h>

/* Size of a segment by id, rounded up to pages; 0 when there is none or
 * nobody subscribes. One shmctl. */
size_t shm_segment_size(int id);

/*
 * End of what shmdt(start) detaches: read from /proc/self/maps, which costs
 * about 2 us and 60 ns a mapping. start + 1 page when nobody subscribes, the
 * end of user space when /proc cannot be read.
 */
uintptr_t shm_attached_end(uintptr_t start);

#endif
