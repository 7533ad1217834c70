/* SPDX-License-Identifier: BSD-3-Clause */
/* Events of the program's own: the inside of lapse_event_register(). */
#ifndef LAPSE_EVENT_H
#define LAPSE_EVENT_H

/* There is a new trace file: it learns the types there are. */
void events_start(void);
/* There is no trace any more. */
void events_stop(void);

#endif
