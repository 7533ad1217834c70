/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A cache that is ready for anything: it subscribes, watches, releases in every
 * way that libc has, and polls. A release that it is not told of must be one
 * that the coverage table calls uncovered, or that it could not watch: never
 * silence (G1, G7). The library is preloaded, or is not there at all.
 * stdout is the same whatever is refused: "done"; it exits 1 and names the
 * path when there was silence.
 * Descriptor 9, if open, gets counters: told T lost L refused R, of the forked
 * child too.
 * Usage: honest [nofile | file-at-2 PATH]
 *   nofile     with no descriptor to be had any more
 *   file-at-2  with a file of its own in the place of stderr
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/lapse.h"

#pragma weak lapse_subscribe
#pragma weak lapse_unsubscribe
#pragma weak lapse_watch
#pragma weak lapse_unwatch
#pragma weak lapse_poll
#pragma weak lapse_drain
#pragma weak lapse_fd
#pragma weak lapse_coverage

#define PAGE 4096ul
#define ROWS 64
#define EVENTS 16
#define MOMENT 5000 /* us, in which another thread gets to its place */
#define LATE 10000  /* tenths of it: then nobody was woken */
#define INLINE "inline system calls"
#define ANYWHERE "any code but libc and ld.so"

static unsigned told, lost, refused, silent;
static _Atomic unsigned long called; /* calls of the callback */

static void count(const struct lapse_event *event, void *arg)
{
    (void)event;
    (void)arg;
    called++;
    usleep(MOMENT);
}

/* Does the table say that this path is seen? */
static int is_covered(const char *path)
{
    const char *where = strcmp(path, INLINE) ? "libc.so.6" : ANYWHERE;
    struct lapse_coverage row[ROWS];
    int n = lapse_coverage(row, ROWS);

    for (int i = 0; i < n && i < ROWS; i++)
        if (!strcmp(row[i].path, path) && !strcmp(row[i].where, where))
            return row[i].mechanism != LAPSE_UNCOVERED;
    return 0;
}

static char *map(void)
{
    char *p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

static int release_munmap(char *p)
{
    return munmap(p, 4 * PAGE);
}

static int release_mmap(char *p)
{
    return mmap(p, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS |
                MAP_FIXED, -1, 0) == MAP_FAILED;
}

static int release_mremap(char *p)
{
    return mremap(p, 4 * PAGE, PAGE, 0) == MAP_FAILED;
}

static int release_madvise(char *p)
{
    return madvise(p, 4 * PAGE, MADV_DONTNEED);
}

static int release_syscall(char *p)
{
    return (int)syscall(SYS_munmap, p, 4 * PAGE);
}

/* Seen by the kernel alone: LAPSE_BACKSTOP. */
static int release_inline(char *p)
{
    long ret;

    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(SYS_munmap), "D"(p), "S"(4 * PAGE)
                     : "rcx", "r11", "memory");
    return (int)ret;
}

static const struct {
    const char *path;
    int (*release)(char *p);
} way[] = {
    {"munmap", release_munmap},   {"mmap", release_mmap},
    {"mremap", release_mremap},   {"madvise", release_madvise},
    {"syscall", release_syscall}, {INLINE, release_inline},
};

static int overlaps(const struct lapse_event *e, const char *p)
{
    return (uintptr_t)p - e->addr < e->len ||
           e->addr - (uintptr_t)p < 4 * PAGE;
}

/* Polls until nothing waits. Was p among it? */
static int hear(lapse_handle s, const char *p)
{
    struct lapse_event event[EVENTS];
    int n, heard = 0;

    do {
        n = lapse_poll(s, event, EVENTS);
        for (int i = 0; i < n; i++)
            heard |= overlaps(&event[i], p);
    } while (n == EVENTS);
    return heard;
}

static void try_way(lapse_handle s, unsigned i)
{
    char *p = map();

    if (!p || lapse_watch(s, p, 4 * PAGE)) {
        refused++;
        return;
    }
    p[0] = 1;
    if (way[i].release(p)) {
        refused++;
        return;
    }
    if (hear(s, p))
        told++;
    else if (!is_covered(way[i].path))
        lost++;
    else {
        printf("SILENT: %s\n", way[i].path);
        silent++;
    }
    lapse_unwatch(s, p, 4 * PAGE);
}

/* Called back by the thread that there is, as it could be made. */
static bool is_called(unsigned long before)
{
    for (int i = 0; i < LATE && called == before; i++)
        usleep(MOMENT / 10);
    return called != before || !is_covered("munmap");
}

/* One that is called back, and lapse_drain() while it is. */
static void try_callback(void)
{
    struct lapse_subscription how = {.size = sizeof how,
                                     .delivery = LAPSE_CALLBACK,
                                     .flags = LAPSE_ALL,
                                     .callback = count};
    unsigned long before;
    lapse_handle s;
    char *p = map();

    if (lapse_subscribe(&how, &s)) {
        refused++;
        return;
    }
    before = called;
    usleep(MOMENT); /* it sleeps */
    if (p && !munmap(p, 4 * PAGE)) {
        if (!is_called(before)) {
            printf("SILENT: nobody called back\n");
            silent++;
        }
        if (lapse_drain())
            refused++;
        else if (called != before)
            told++;
        else if (!is_covered("munmap"))
            lost++;
        else {
            printf("SILENT: callback\n");
            silent++;
        }
    }
    lapse_unsubscribe(s);
}

static void try_all(void)
{
    struct lapse_subscription how = {.size = sizeof how};
    lapse_handle s;

    if (!lapse_subscribe)
        return;
    if (!lapse_subscribe(&how, &s)) {
        refused += lapse_fd(s) < 0;
        for (unsigned i = 0; i < sizeof way / sizeof *way; i++)
            try_way(s, i);
        lapse_unsubscribe(s);
    } else {
        refused++;
    }
    try_callback();
}

int main(int argc, char **argv)
{
    int status = -1;
    pid_t pid;

    /* It could not be loaded with that. */
    if (argc > 1 && !strcmp(argv[1], "nofile"))
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, 0});
    if (argc > 2 && !strcmp(argv[1], "file-at-2")) {
        close(2);
        if (open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600) != 2)
            return 3;
    }
    try_all();
    pid = fork();
    if (pid == 0) {
        silent = 0;
        try_all();
        fflush(stdout);
        dprintf(9, "told %u lost %u refused %u, ", told, lost, refused);
        _exit(silent != 0);
    }
    if (pid > 0)
        waitpid(pid, &status, 0);
    dprintf(9, "told %u lost %u refused %u\n", told, lost, refused);
    printf("done\n");
    return silent != 0 || status != 0;
}
