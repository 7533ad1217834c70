/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stands where liblapse should be, says that everything is covered, and tells
 * nothing (DEAF=hang: hangs; DEAF=crash: crashes), so that `lapse check` has
 * something to find.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/lapse.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int lapse_subscribe(const struct lapse_subscription *how,
                           lapse_handle *out)
{
    (void)how;
    memset(out, 0, sizeof(*out));
    return 0;
}

EXPORT int lapse_watch(lapse_handle s, const void *addr, size_t len)
{
    (void)s;
    (void)addr;
    (void)len;
    return 0;
}

EXPORT int lapse_poll(lapse_handle s, struct lapse_event *events, size_t n)
{
    const char *what = getenv("DEAF");

    (void)s;
    (void)events;
    (void)n;
    if (what && !strcmp(what, "crash"))
        abort();
    while (what && !strcmp(what, "hang"))
        pause();
    return 0;
}

EXPORT int lapse_coverage(struct lapse_coverage *rows, size_t n)
{
    if (n)
        rows[0] = (struct lapse_coverage){"munmap", "libc.so.6", "",
                                          LAPSE_SITE, 0};
    return 1;
}

EXPORT int lapse_stats(struct lapse_stats *out)
{
    memset(out->path, 0, sizeof(out->path));
    return 0;
}

EXPORT const char *lapse_path_name(unsigned path)
{
    (void)path;
    return "?";
}
