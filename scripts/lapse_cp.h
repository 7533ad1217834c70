/* SPDX-License-Identifier: BSD-3-Clause */
/* lapse-cp: options (lapse_cp.c), and one file copied (lapse_cp_file.c). */
#ifndef LAPSE_CP_H
#define LAPSE_CP_H

#include <stdbool.h>
#include <stddef.h>

#include "rcache/lapse_rcache.h"
#include "ring.h"

#define DEPTH_MOST 64
#define BUFFER_MOST ((size_t)64 << 20)

/* How, and with what. */
struct copier {
    size_t buffer_bytes;
    unsigned depth;
    bool verbose;
    struct ring ring;
    lapse_rcache *cache;
};

/* False: it said why not. */
bool copy_file(struct copier *how, const char *from, const char *to);

bool complain(const char *name, const char *what);
/* That there is no buffer, and what can be done. */
void complain_of_pinning(int err);

#endif
