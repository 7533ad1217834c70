/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading the mappings of a process, from text cut anywhere. */
#include "hooks/maps.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

static const char text[] =
    "55d0c8a00000-55d0c8a02000 r--p 00000000 fe:00 1311         /usr/bin/a b\n"
    "7f0000000000-7f0000100000 rw-s 00042000 00:01 0            /SYSV00000000"
    " (deleted)\n"
    "7f0000200000-7f0000300000 rw-p 00000000 00:00 0 \n"
    "7f0000400000-7f0000401000 rwxp ffff0000 103:0a 18446744073709551615 /x\n"
    "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0    [vsyscall]\n";

static const struct maps_line lines[] = {
    {0x55d0c8a00000, 0x55d0c8a02000, 0, 0xfe00, 1311, 1},
    {0x7f0000000000, 0x7f0000100000, 0x42000, 1, 0, 1},
    {0x7f0000200000, 0x7f0000300000, 0, 0, 0, 1},
    {0x7f0000400000, 0x7f0000401000, 0xffff0000, 0x1030a, UINT64_MAX, 1},
    {0xffffffffff600000, 0xffffffffff601000, 0, 0, 0, 0},
};
#define LINES (sizeof(lines) / sizeof(lines[0]))

static void expect_next(void *arg, const struct maps_line *line)
{
    size_t *at = arg;

    cr_assert_lt(*at, LINES);
    cr_expect(!memcmp(line, &lines[*at], sizeof(*line)), "line %zu", *at);
    ++*at;
}

Test(maps, takes_text_in_pieces_of_any_size)
{
    for (size_t piece = 1; piece <= sizeof(text); piece++) {
        struct maps_text t = {0};
        size_t at = 0;

        for (size_t i = 0; i < sizeof(text) - 1; i += piece)
            maps_feed(&t, text + i,
                      sizeof(text) - 1 - i < piece ? sizeof(text) - 1 - i
                                                   : piece,
                      expect_next, &at);
        cr_expect_eq(at, LINES, "pieces of %zu", piece);
        cr_expect_eq(t.lines, LINES);
    }
}

Test(maps, knows_shared_memory_without_inode_from_anonymous)
{
    cr_expect(maps_is_file(&lines[0]));
    cr_expect(maps_is_file(&lines[1]), "the first segment of a boot");
    cr_expect_not(maps_is_file(&lines[2]));
    cr_expect(maps_is_file(&lines[3]));
    cr_expect_not(maps_is_file(&lines[4]));
}

struct wanted {
    uintptr_t at;
    struct maps_line line;
};

static void look_for(void *arg, const struct maps_line *line)
{
    struct wanted *w = arg;

    if (w->at >= line->start && w->at < line->end)
        w->line = *line;
}

Test(maps, finds_a_mapping_of_this_process)
{
    int file = memfd_create("maps", 0);
    struct wanted w = {0};

    cr_assert_eq(ftruncate(file, 8 * 4096), 0);
    w.at = (uintptr_t)mmap(NULL, 2 * 4096, PROT_READ, MAP_SHARED, file, 4096);
    cr_assert(maps_each(look_for, &w));
    cr_expect_eq(w.line.start, w.at);
    cr_expect_eq(w.line.end, w.at + 2 * 4096);
    cr_expect_eq(w.line.offset, 4096);
    cr_expect(w.line.inode);
}

static void *without_first_thread(void *arg)
{
    struct wanted w = {.at = (uintptr_t)text};

    usleep(50000); /* the first thread ends */
    _exit(maps_each(look_for, &w) && w.line.start ? 0 : 1);
    return arg;
}

Test(maps, reads_those_of_a_process_whose_first_thread_ended)
{
    pid_t child = fork();
    pthread_t thread;
    int status = -1;

    if (!child) {
        pthread_create(&thread, NULL, without_first_thread, NULL);
        pthread_exit(NULL);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
