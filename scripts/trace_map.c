/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace_impl.h"

static struct trace_map *maps; /* all that are open, for the handler */
static struct sigaction before;
static size_t page;

/* A page of the file is gone: zeros in its place. mmap() is one system call,
 * which a handler may make. */
static void on_sigbus(int signal, siginfo_t *info, void *context)
{
    const uint8_t *at = info->si_addr;
    int error = errno;

    (void)context;
    for (struct trace_map *map = maps; map; map = map->next) {
        if (at < map->bytes || at >= map->bytes + map->size)
            continue;
        if (mmap((void *)((uintptr_t)at & ~(page - 1)), page, PROT_READ,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
        {
            errno = error;
            return;
        }
    }
    /* Not ours, or no way to go on: it comes again at once. */
    sigaction(signal, &before, NULL);
}

static void handle_sigbus(void)
{
    struct sigaction action = {.sa_sigaction = on_sigbus,
                               .sa_flags = SA_SIGINFO};

    page = (size_t)sysconf(_SC_PAGESIZE);
    sigaction(SIGBUS, &action, &before);
}

bool trace_map_open(struct trace_map *map, const char *path, const char **why)
{
    /* Not to wait for a writer, if it is a pipe. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;
    void *bytes;

    *map = (struct trace_map){0};
    if (fd < 0 || fstat(fd, &st)) {
        *why = strerror(errno);
    } else if (!S_ISREG(st.st_mode)) {
        *why = "is not a file";
    } else if (st.st_size < (off_t)sizeof(struct trace_header)) {
        *why = "is not a trace of lapse";
    } else {
        bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (bytes == MAP_FAILED) {
            *why = strerror(errno);
        } else {
            map->bytes = bytes;
            map->size = (size_t)st.st_size;
            if (!maps)
                handle_sigbus();
            map->next = maps;
            maps = map;
        }
    }
    if (fd >= 0)
        close(fd);
    return map->bytes;
}

void trace_map_close(struct trace_map *map)
{
    struct trace_map **link = &maps;

    if (!map->bytes)
        return;
    while (*link && *link != map)
        link = &(*link)->next;
    if (*link)
        *link = map->next;
    munmap((void *)map->bytes, map->size);
    if (!maps)
        sigaction(SIGBUS, &before, NULL);
    *map = (struct trace_map){0};
}

void trace_copy(void *to, const void *from, size_t bytes)
{
    uint64_t *target = to;
    const uint64_t *source = from;

    for (size_t i = 0; i < bytes / sizeof(*source); i++)
        target[i] = __atomic_load_n(&source[i], __ATOMIC_RELAXED);
}
