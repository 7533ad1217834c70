/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Static probes (USDT), for perf, bpftrace, SystemTap and gdb: provider
 * `lapse`. Each is one nop in the code and a note in the file that says where
 * its arguments are; nothing is linked. An argument that would have to be
 * worked out when nobody listens does not belong here.
 */
#ifndef LAPSE_PROBES_H
#define LAPSE_PROBES_H

#include <sys/sdt.h>

/* A record of a release is in the queue of that subscriber. */
#define probe_publish(subscriber, start, len, reason, seq) \
    DTRACE_PROBE5(lapse, publish, subscriber, start, len, reason, seq)
/* An event goes to its subscriber: out of poll, to a callback, to an INLINE
 * handler. */
#define probe_deliver(subscriber, start, len, reason, seq, flags) \
    DTRACE_PROBE6(lapse, deliver, subscriber, start, len, reason, seq, flags)
/* Its records are used up: it will be told OVERFLOW. */
#define probe_overflow(subscriber) DTRACE_PROBE1(lapse, overflow, subscriber)
/* It watches, or watches no more. */
#define probe_watch(subscriber, addr, len) \
    DTRACE_PROBE3(lapse, watch, subscriber, addr, len)
#define probe_unwatch(subscriber, addr, len) \
    DTRACE_PROBE3(lapse, unwatch, subscriber, addr, len)

#endif
