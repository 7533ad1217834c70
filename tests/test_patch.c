/* SPDX-License-Identifier: BSD-3-Clause */
/* Replacing an instruction, and what an entry does for the hook behind it. */
#include "hooks/patch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/fake_hooks.h"

#define PAGE 4096
#define THREADS 3

static const uint8_t one[] = {0xb8, 1, 1, 1, 1}; /* mov $0x01010101,%eax */
static const uint8_t two[] = {0xb8, 2, 2, 2, 2};

/* Text of two pages, with a function at an offset: an instruction, ret. */
static uint8_t *make_text(size_t offset, const uint8_t *code, size_t size)
{
    uint8_t *text = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    cr_assert_neq(text, MAP_FAILED);
    memset(text, 0xcc, 2 * PAGE);
    memcpy(text + offset, code, size);
    cr_assert_eq(mprotect(text, 2 * PAGE, PROT_READ | PROT_EXEC), 0);
    return text;
}

static struct module module_of(const uint8_t *text, const char *path)
{
    return (struct module){
        .base = text, .path = path, .text = text, .text_size = 2 * PAGE};
}

static unsigned run(const uint8_t *code)
{
    return ((unsigned (*)(void))(uintptr_t)code)();
}

static uint8_t *make_returner(size_t offset)
{
    uint8_t code[] = {0xb8, 1, 1, 1, 1, 0xc3};

    return make_text(offset, code, sizeof(code));
}

/* The line of /proc/self/maps that has the address. */
static const char *map_line(const void *at)
{
    static char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long start, end;

    cr_assert_not_null(maps);
    while (fgets(line, sizeof(line), maps))
        if (sscanf(line, "%lx-%lx", &start, &end) == 2 &&
            (uintptr_t)at >= start && (uintptr_t)at < end) {
            fclose(maps);
            return line;
        }
    fclose(maps);
    return "";
}

struct way {
    const char *name;
    bool memory, alone;
};
static const struct way ways[] = {
    {"in place", true, true},
    {"exchanged", true, false},
    {"exchanged, no /proc", false, true},
    {"exchanged, no /proc, threads", false, false},
};

static struct patcher patcher_of(const struct way *way)
{
    struct patcher patcher;

    patcher_open(&patcher);
    cr_assert_geq(patcher.memory, 0);
    patcher.alone = way->alone;
    if (!way->memory) {
        close(patcher.memory);
        patcher.memory = -EACCES;
    }
    return patcher;
}

Test(patch, changes_the_instruction_and_nothing_else)
{
    static const size_t offsets[] = {0, 5, 60, PAGE - 8, PAGE - 3, PAGE - 1};

    for (size_t i = 0; i < 4 * 6; i++) {
        const struct way *way = &ways[i % 4];
        struct patcher patcher = patcher_of(way);
        uint8_t *text = make_returner(offsets[i / 4]);
        uint8_t *at = text + offsets[i / 4], before[2 * PAGE];
        struct module module = module_of(text, "/nonexistent");

        memcpy(before, text, sizeof(before));
        cr_expect_null(patch_window(&patcher, &module, at, one, two));
        cr_expect_eq(run(at), 0x02020202, "%s", way->name);
        memcpy(before + offsets[i / 4], two, sizeof(two));
        cr_expect_arr_eq(before, text, sizeof(before), "%s", way->name);
        cr_expect(strstr(map_line(at), " r-xp "), "%s", map_line(at));
        patcher_close(&patcher);
    }
}

Test(patch, leaves_an_unexpected_instruction_alone)
{
    for (size_t i = 0; i < 4; i++) {
        struct patcher patcher = patcher_of(&ways[i]);
        uint8_t *text = make_returner(0);
        struct module module = module_of(text, "/nonexistent");

        cr_expect_str_eq(patch_window(&patcher, &module, text, two, one),
                         "its instruction is not the one expected");
        cr_expect_eq(run(text), 0x01010101);
        patcher_close(&patcher);
    }
}

Test(patch, keeps_a_library_page_mapped_from_its_file)
{
    char path[] = "/tmp/lapse-test-XXXXXX";
    int file = mkstemp(path);
    struct patcher patcher = patcher_of(&ways[1]);
    uint8_t code[2 * PAGE] = {0xb8, 1, 1, 1, 1, 0xc3}, back[6];
    struct module module;
    uint8_t *text;

    memcpy(code + 64, code, 6);
    cr_assert_eq(write(file, code, sizeof(code)), (ssize_t)sizeof(code));
    text = mmap(NULL, 2 * PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    cr_assert_neq(text, MAP_FAILED);
    module = module_of(text, path);
    for (size_t at = 0; at <= 64; at += 64) { /* the 2nd differs from file */
        cr_expect_null(patch_window(&patcher, &module, text + at, one, two));
        cr_expect_eq(run(text + at), 0x02020202);
        cr_expect(strstr(map_line(text), path), "%s", map_line(text));
    }
    cr_expect_eq(run(text), 0x02020202);
    cr_expect_eq(pread(file, back, 6, 0), 6);
    cr_expect_arr_eq(back, code, 6, "the file itself was changed");
    unlink(path);
    patcher_close(&patcher);
}

static void *wait_for_end(void *arg)
{
    pause();
    return arg;
}

static bool is_alone(void)
{
    struct patcher patcher;

    patcher_open(&patcher);
    patcher_close(&patcher);
    return patcher.alone;
}

Test(patch, knows_whether_it_is_alone)
{
    pid_t child = fork(); /* Criterion itself may have threads */
    int status;

    if (!child) {
        pthread_t thread;
        bool before = is_alone();

        pthread_create(&thread, NULL, wait_for_end, NULL);
        _exit(before && !is_alone() ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
}

/* Threads run the instruction while it changes: always one, or the other. */
static uint8_t *shared_code;
static int stop, torn;

static void *runner(void *arg)
{
    /* relaxed: flags that end the test, they order nothing */
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        unsigned got = run(shared_code);

        if (got != 0x01010101 && got != 0x02020202)
            __atomic_store_n(&torn, 1, __ATOMIC_RELAXED);
    }
    return arg;
}

static long milliseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* An in-place write of 5 bytes gets torn within 1.5 s on two processors. */
static void flip_under_threads(size_t offset, long duration)
{
    long end = milliseconds() + duration;
    pthread_t threads[THREADS];
    uint8_t *text = make_returner(offset);
    struct module module = module_of(text, "/nonexistent");
    struct patcher patcher;

    shared_code = text + offset;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, runner, NULL);
    patcher_open(&patcher);
    cr_expect_not(patcher.alone);
    for (int i = 0; milliseconds() < end; i++)
        cr_assert_null(patch_window(&patcher, &module, shared_code,
                                    i & 1 ? two : one, i & 1 ? one : two));
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    patcher_close(&patcher);
    cr_expect_not(torn);
}

Test(patch, is_never_seen_half_done, .timeout = 60)
{
    flip_under_threads(62, 1500);
}

Test(patch, is_never_seen_half_done_across_pages, .timeout = 60)
{
    flip_under_threads(PAGE - 2, 300);
}

Test(patch, makes_stubs_within_reach)
{
    /* out of reach of our text, wherever that is */
    uint8_t *far = mmap((void *)0x100000000000, PAGE, PROT_READ,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uintptr_t site = (uintptr_t)far + 64;
    uintptr_t stub = near_entry(site, 3);
    uint8_t expected[ARCH_STUB];

    cr_assert_neq(far, MAP_FAILED);
    cr_assert_not(arch_reaches(site, arch_entry(3)));
    cr_assert(stub && arch_reaches(site, stub));
    arch_stub(expected, arch_entry(3));
    cr_assert_arr_eq((uint8_t *)stub, expected, ARCH_STUB);
    cr_assert_eq(near_entry(site, 4) - stub, ARCH_STUB, "same page");
    cr_assert(strstr(map_line((void *)stub), " r-xp "));
    cr_assert_eq(near_entry(arch_entry(0), 5), arch_entry(5), "no detour");
}
