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
    {0x55d0c8a00000, 0x55d0c8a02000, 0, 1311, 0xfe00, true},
    {0x7f0000000000, 0x7f0000100000, 0x42000, 0, 1, true},
    {0x7f0000200000, 0x7f0000300000, 0, 0, 0, true},
    {0x7f0000400000, 0x7f0000401000, 0xffff0000, UINT64_MAX, 0x1030a, true},
    {0xffffffffff600000, 0xffffffffff601000, 0, 0, 0, false},
};
#define LINES (sizeof(lines) / sizeof(lines[0]))

Test(maps, takes_text_in_pieces_of_any_size)
{
    int file = memfd_create("text", 0);
    char piece[sizeof(text)];

    cr_assert_eq(write(file, text, sizeof(text) - 1), sizeof(text) - 1);
    for (uint16_t room = 1; room <= sizeof(text); room++) {
        struct maps m = {.text = piece, .room = room, .fd = dup(file)};

        lseek(file, 0, SEEK_SET);
        for (size_t i = 0; i < LINES; i++) {
            cr_assert(maps_next(&m), "line %zu, pieces of %u", i, room);
            cr_expect(!memcmp(&m.line, &lines[i], sizeof(m.line)),
                      "line %zu, pieces of %u", i, room);
        }
        cr_expect_not(maps_next(&m));
        cr_expect_eq(m.lines, LINES);
        cr_expect(maps_close(&m));
    }
}

Test(maps, says_when_it_did_not_read_them)
{
    char piece[MAPS_TEXT];
    struct maps m = {.text = piece, .room = sizeof(piece), .fd = -1};

    cr_expect_not(maps_next(&m));
    cr_expect_not(maps_close(&m), "no file");
    m = (struct maps){.text = piece, .room = sizeof(piece),
                      .fd = memfd_create("empty", 0)};
    cr_expect_not(maps_next(&m));
    cr_expect_not(maps_close(&m), "an empty one");
    maps_open(&m, piece, sizeof(piece));
    cr_expect(maps_next(&m));
    cr_expect_not(maps_close(&m), "left before the end");
}

Test(maps, knows_shared_memory_without_inode_from_anonymous)
{
    cr_expect(maps_is_file(&lines[0]));
    cr_expect(maps_is_file(&lines[1]), "the first segment of a boot");
    cr_expect_not(maps_is_file(&lines[2]));
    cr_expect(maps_is_file(&lines[3]));
    cr_expect_not(maps_is_file(&lines[4]));
}

/* The one that holds `at`; false when they cannot be read. */
static bool look_for(uintptr_t at, struct maps_line *line)
{
    char piece[MAPS_TEXT];
    struct maps m;

    for (maps_open(&m, piece, sizeof(piece)); maps_next(&m);)
        if (at >= m.line.start && at < m.line.end)
            *line = m.line;
    return maps_close(&m);
}

Test(maps, finds_a_mapping_of_this_process)
{
    int file = memfd_create("maps", 0);
    struct maps_line line = {0};
    uintptr_t at;

    cr_assert_eq(ftruncate(file, 8 * 4096), 0);
    at = (uintptr_t)mmap(NULL, 2 * 4096, PROT_READ, MAP_SHARED, file, 4096);
    cr_assert(look_for(at, &line));
    cr_expect_eq(line.start, at);
    cr_expect_eq(line.end, at + 2 * 4096);
    cr_expect_eq(line.offset, 4096);
    cr_expect(line.inode);
}

static void *without_first_thread(void *arg)
{
    struct maps_line line = {0};

    usleep(50000); /* the first thread ends */
    _exit(look_for((uintptr_t)text, &line) && line.start ? 0 : 1);
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
