/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a System V segment is. The one question that a hook cannot answer
 * without a system call of its own; asked only while somebody subscribes.
 */
#ifndef LAPSE_SHM_RANGE_H
#define LAPSE_SHM_RANGE_H

#include <stddef.h>
#include <stdint.h>

/* Size of a segment by id; USER_END when it cannot be told, or nobody asks
 * (no subscriber: who comes now shall meet all of it in flight). */
size_t shm_segment_size(int id);

/*
 * End of what shmdt(start) detaches: read from /proc/thread-self/maps, so it
 * costs more the more mappings there are. The end of user space when nobody
 * subscribes, as above, or when /proc cannot be read.
 */
uintptr_t shm_attached_end(uintptr_t start);

#endif
