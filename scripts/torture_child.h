/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the torture child share: torture_deadlock.c (releasers,
   start and end), torture_cache.c (toy cache, handler, holders),
   torture_witness.c (was anything forgotten?). */
#ifndef LAPSE_TORTURE_CHILD_H
#define LAPSE_TORTURE_CHILD_H

#include "torture.h"

#define KIB 1024ul

struct torture_child {
    const struct torture_options *options;
    enum torture_mode mode;
    struct torture_board *board;
    lapse_handle handle;
};
extern struct torture_child child;

/* What this thread is; NULL on threads that are not ours. */
extern __thread struct torture_thread *self;
extern __thread bool in_sync; /* inside lapse_sync(), which may call us back */

/* torture_deadlock.c */
void thread_begin(struct torture_thread *thread);
bool thread_goes_on(void);
uint64_t random_next(void);
void place_set(enum torture_place place);
void *take(size_t size); /* malloc, and say where we are meanwhile */
void give(void *block);  /* free, likewise */
void refused(const char *call, int error); /* error: -errno */

/* torture_cache.c */
void cache_handler(const struct lapse_event *event, void *arg);
void cache_drain(void); /* poll with the cache lock held */
void cache_clear(void);
void *holder(void *thread);

/* torture_witness.c: pages that are released one by one, each of which must
   be told of. Lane: one per releaser. */
bool witness_init(unsigned lanes);
void witness_release(unsigned lane);
void witness_told(const struct lapse_event *event);
uint64_t witness_lost(void); /* when all was drained */

#endif
