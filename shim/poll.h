/* SPDX-License-Identifier: BSD-3-Clause */
/* The consumer's side of a queue; with the subscriber's lock held. */
#ifndef LAPSE_POLL_H
#define LAPSE_POLL_H

#include "subscriber.h"

enum collect {
    COLLECT_POLL,  /* open records again in every round */
    COLLECT_DRAIN, /* open records when new, and again once closed */
    COLLECT_SYNC   /* as POLL, but nothing that came since the round began */
};

/*
 * Up to n events of the current round. Fewer than n: the round is over. Marks
 * the queue idle when nothing is left to be told.
 */
size_t poll_collect(struct subscriber *s, struct lapse_event *events,
                    size_t n, enum collect mode);

/* Take what producers pushed over to the backlog. */
void poll_take(struct subscriber *s);

/* Begin a round, whatever became of the last. */
void poll_rewind(struct subscriber *s);

/* The forked child, alone: make the pool whole again; it has no descriptor; and
 * what else is to do for one that lives on. */
void poll_rebuild(struct subscriber *s);
void poll_drop_fd(struct subscriber *s);
void poll_fork_child(struct subscriber *s);

#endif
