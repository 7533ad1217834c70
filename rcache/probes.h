/* SPDX-License-Identifier: BSD-3-Clause */
/* Static probes (USDT) of the cache, provider `lapse`: each is one nop. */
#ifndef LAPSE_RCACHE_PROBES_H
#define LAPSE_RCACHE_PROBES_H

#include <sys/sdt.h>

/* A lookup found a region. */
#define probe_hit(cache, addr, len, region) \
    DTRACE_PROBE4(lapse, hit, cache, addr, len, region)
/* A lookup found none: one is going to be made. */
#define probe_miss(cache, addr, len) \
    DTRACE_PROBE3(lapse, miss, cache, addr, len)
/* A region makes room for others. */
#define probe_evict(cache, region) DTRACE_PROBE2(lapse, evict, cache, region)

#endif
