/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The backstop: userfaultfd on watched pages, so that the kernel itself tells
 * of releases that no site sees. Registered in write-protect mode with no page
 * protected: events, and never a page fault that somebody has to answer.
 *
 * Invariant R1: a page that is watched and mapped is registered, or some
 *   release in flight that was told of it has it lifted, or the kernel refused
 *   it. Who changes a filter registers or unregisters after that (K3), and who
 *   registers or unregisters for any other cause looks at the filters again
 *   after it (K4), and begins anew if they changed. So the last system call
 *   that touched the page is right about it, and no lock is needed.
 * Invariant R2: a release that a hook tells of lifts its range before its
 *   system call, so it waits for nobody; the range is registered again before
 *   its record closes. What others release in between without a hook lies
 *   inside that record: told as long as it is open, and once more after.
 */
#ifndef LAPSE_HOOKS_BACKSTOP_H
#define LAPSE_HOOKS_BACKSTOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/release.h"

/* The userfaultfd; -1 while there is none. */
extern _Atomic int backstop_fd __attribute__((visibility("hidden")));

/* Whose memory it is about: a child that no handler of ours saw born has the
 * file, too. */
extern int backstop_pid __attribute__((visibility("hidden")));

/* Does it matter what becomes of [start, end)? Two loads when it is off. */
static inline bool backstop_cares(uintptr_t start, uintptr_t end)
{
    return __builtin_expect(atomic_load_explicit(&backstop_fd,
                                                 memory_order_relaxed) >= 0,
                            0) &&
           release_in_hull(start, end);
}

/* For hooks (G4); they may be called whenever backstop_cares(). */

/* Before the system call of a release that was told: true if the kernel need
 * not tell of it, and backstop_fit() is due after the call. */
bool backstop_lift(uintptr_t start, uintptr_t end);

/* Whatever is mapped in [start, end) now: register what is watched of it. */
void backstop_fit(uintptr_t start, uintptr_t end);

/* What most hooks do of it around their system call: before it, and if that
 * said true, after it, before the record closes (R2). */
static inline bool backstop_before(uintptr_t start, uintptr_t end)
{
    return backstop_cares(start, end) && backstop_lift(start, end);
}

static inline void backstop_after(uintptr_t start, uintptr_t end)
{
    if (backstop_cares(start, end))
        backstop_fit(start, end);
}

/* The same; what is not watched is unregistered, too. */
void backstop_fit_all(uintptr_t start, uintptr_t end);

/*
 * [start, end) is about to be given to the program as new memory. If some of
 * it is watched, it was released and nobody told so far: between the kernel's
 * work and its event lies a moment. Told here, before anybody can use it.
 */
void backstop_mapped(uintptr_t start, uintptr_t end);

/* How a run is registered or unregistered. */
typedef void backstop_apply(uintptr_t start, uintptr_t end, bool on);
void backstop_fit_by(uintptr_t start, uintptr_t end, bool all,
                     backstop_apply *by);

/* Nothing is there any more, the usual cause of a refusal. By its two ends. */
bool backstop_gone(uintptr_t start, uintptr_t end);

/* For all but hooks: register or unregister all of the range, piece by piece
 * where the kernel does not take it as a whole. */
void backstop_pieces(uintptr_t start, uintptr_t end, bool on);

/* How many mappings the process has. */
uint64_t backstop_mappings(void);

/* -errno of the kernel. */
long backstop_register(uintptr_t start, uintptr_t end);
long backstop_unregister(uintptr_t start, uintptr_t end);

/* From the constructor, when asked for: learn whether the kernel grants it. */
void backstop_start(void);

#endif
