/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel as a teller of releases that no hook sees (LAPSE_BACKSTOP=uffd).
 * shim/ knows when it is to be asked; how is hooks/backstop.c's business.
 */
#ifndef LAPSE_BACKSTOP_H
#define LAPSE_BACKSTOP_H

#include <stdbool.h>
#include <stdint.h>

#include "subscriber.h"

/* None of these fails: what the kernel refuses is said in the coverage table.
 * None is called by a hook. */
struct lapse_backstop {
    /* Somebody subscribes; the registry is held. */
    void (*start)(void);
    /* Somebody is live since just now; no lock is held. Returns when the
     * reader cannot but see him. */
    void (*joined)(void);
    /* These pages are watched since just now; before lapse_watch looks at
     * what is in flight. */
    void (*watch)(uintptr_t start, uintptr_t end);
    /* Some of these are perhaps not watched any more. */
    void (*unwatch)(uintptr_t start, uintptr_t end);
    /* The forked child, alone. */
    void (*fork_child)(void);
    /* Any entry of the API; no lock of ours is held. */
    void (*revive)(void);
};

/* NULL: off. Set by the constructor. */
extern const struct lapse_backstop *lapse_backstop
    __attribute__((visibility("hidden")));

/* s is about to be asked what there is; its lock is held. Waits, for a moment
 * only, for what the kernel has told and the reader not yet published; see
 * QUEUE_COMING. */
void backstop_settle(struct subscriber *s);

#endif
