/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The third oracle: what the kernel itself says was unmapped, moved or removed
 * (events of userfaultfd, on the watched range), against what the library told.
 * For each row of the table of `lapse check`: events ROW, with the library
 * preloaded. Not every path has an event: then nothing is judged here.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "scripts/check.h"

enum { GOOD = 0, TROUBLE = 1, NO_EVENT = 3, MISSED = 4, CANNOT = 77 };
#define EVENTS (UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE | \
                UFFD_FEATURE_EVENT_UNMAP)

static int uffd;
static char *watched;
static _Atomic uint64_t gone; /* pages, as the kernel says */

static uint64_t pages_of(uintptr_t start, uintptr_t end)
{
    uint64_t pages = 0;

    for (unsigned i = 0; i < CHECK_PAGES; i++) {
        uintptr_t page = (uintptr_t)watched + (uintptr_t)i * PAGE_BYTES;

        if (page < end && page + PAGE_BYTES > start)
            pages |= 1ull << i;
    }
    return pages;
}

/* Whoever releases sleeps in the kernel until his event was read. */
static void *read_events(void *arg)
{
    struct pollfd wait = {.fd = uffd, .events = POLLIN};
    struct uffd_msg m;
    uint64_t pages;

    (void)arg;
    while (poll(&wait, 1, -1) > 0) {
        if (read(uffd, &m, sizeof(m)) != sizeof(m))
            continue;
        if (m.event == UFFD_EVENT_REMAP)
            pages = pages_of(m.arg.remap.from,
                             m.arg.remap.from + m.arg.remap.len);
        else
            pages = pages_of(m.arg.remove.start, m.arg.remove.end);
        /* relaxed: read after the release, which the kernel's wake orders
         * behind the read of the event, and after a look at the queue */
        atomic_fetch_or_explicit(&gone, pages, memory_order_relaxed);
    }
    return NULL;
}

/* Before the row begins: a thread takes memory, from the break perhaps. */
static bool listen_to_kernel(void)
{
    struct uffdio_api api = {.api = UFFD_API, .features = EVENTS};
    pthread_t reader;

    uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK |
                                             UFFD_USER_MODE_ONLY);
    return uffd >= 0 && !ioctl(uffd, UFFDIO_API, &api) &&
           !pthread_create(&reader, NULL, read_events, NULL);
}

/* Write-protect mode, and no page is protected: no fault ever comes. */
static bool listen_to_range(void)
{
    struct uffdio_register range = {
        .range = {(uintptr_t)watched, CHECK_BYTES},
        .mode = UFFDIO_REGISTER_MODE_WP};

    return !ioctl(uffd, UFFDIO_REGISTER, &range);
}

static uint64_t told(const struct shim *shim, lapse_handle s)
{
    struct lapse_event event[16];
    uint64_t pages = 0;
    int n;

    do {
        n = shim->poll(s, event, 16);
        for (int i = 0; i < n; i++)
            pages |= pages_of(event[i].addr, event[i].addr + event[i].len);
    } while (n == 16);
    return pages;
}

static int run(const struct check_row *row)
{
    struct lapse_subscription how = {.size = sizeof(how),
                                     .delivery = LAPSE_POLL};
    struct scene scene = {.fd = -1, .other_fd = -1};
    struct shim shim;
    lapse_handle s;
    uint64_t by_kernel, by_library;

    if (!shim_find(&shim) || shim.subscribe(&how, &s))
        return TROUBLE;
    if (!listen_to_kernel()) {
        printf("userfaultfd: %s\n", strerror(errno));
        return CANNOT;
    }
    if (!row->setup(&scene)) {
        puts(scene.why);
        return NO_EVENT;
    }
    watched = scene.addr;
    if (shim.watch(s, watched, CHECK_BYTES))
        return TROUBLE;
    if (!listen_to_range()) {
        printf("UFFDIO_REGISTER: %s\n", strerror(errno));
        return NO_EVENT;
    }
    if (!row->release(&scene)) {
        puts(scene.why);
        return NO_EVENT;
    }
    by_library = told(&shim, s);
    usleep(2000); /* the reader may have read an event, and not noted it yet */
    by_kernel = atomic_load_explicit(&gone, memory_order_relaxed);
    printf("the kernel says %#lx, the library %#lx\n", (long)by_kernel,
           (long)by_library);
    if (by_kernel & ~by_library)
        return MISSED;
    return by_kernel ? GOOD : NO_EVENT;
}

int main(int argc, char **argv)
{
    for (unsigned i = 0; i < check_row_count; i++)
        if (argc == 2 && !strcmp(check_rows[i].name, argv[1])) {
            int status = run(&check_rows[i]);

            fflush(stdout);
            _exit(status); /* not exit: see protocol.c */
        }
    return TROUBLE;
}
