/* SPDX-License-Identifier: BSD-3-Clause */
/* Files in a directory that the environment names. */
#include "shim/own_file.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

static char base[] = "/tmp/lapse-own-XXXXXX";
static struct own_dir dir;

static void start(void)
{
    cr_assert_not_null(mkdtemp(base));
}

static void end(void)
{
    char command[64];

    snprintf(command, sizeof(command), "rm -rf %s", base);
    cr_assert_eq(system(command), 0);
}

static void name_of(char *name, size_t room, int n)
{
    snprintf(name, room, "%s/%d.%d.x", base, (int)getpid(), n);
}

Test(own_file, takes_the_next_name, .init = start, .fini = end)
{
    char name[96];
    struct stat st;
    void *at;

    cr_assert_eq(own_dir_open(&dir, base), 0);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(own_file_map(&dir, ".x", 8192, NULL, &at), 0);
        ((char *)at)[8191] = 1;
        name_of(name, sizeof(name), i);
        cr_assert_eq(stat(name, &st), 0);
        cr_expect_eq(st.st_size, 8192);
        cr_expect_eq(st.st_mode & 07777, 0600);
    }
}

/* Who may read it is not for the program's umask to say. */
Test(own_file, is_its_owners_with_any_umask, .init = start, .fini = end)
{
    char name[96];
    struct stat st;
    void *at;

    cr_assert_eq(own_dir_open(&dir, base), 0);
    umask(0777);
    cr_assert_eq(own_file_map(&dir, ".x", 8192, NULL, &at), 0);
    name_of(name, sizeof(name), 0);
    cr_assert_eq(stat(name, &st), 0);
    cr_expect_eq(st.st_mode & 07777, 0600);
}

/* A link in our way is passed by, wherever it leads. */
Test(own_file, follows_no_link, .init = start, .fini = end)
{
    char name[96], victim[96];
    struct stat st;
    void *at;

    snprintf(victim, sizeof(victim), "%s/victim", base);
    name_of(name, sizeof(name), 0);
    cr_assert_eq(symlink(victim, name), 0);
    cr_assert_eq(own_dir_open(&dir, base), 0);
    cr_assert_eq(own_file_map(&dir, ".x", 4096, NULL, &at), 0);
    cr_expect_eq(stat(victim, &st), -1);
    name_of(name, sizeof(name), 1);
    cr_expect_eq(stat(name, &st), 0);
}

Test(own_file, wants_a_directory_that_is_safe, .init = start, .fini = end)
{
    char name[96];

    cr_assert_eq(chmod(base, 0777), 0);
    cr_expect_eq(own_dir_open(&dir, base), -EPERM);
    cr_assert_eq(chmod(base, 0770), 0);
    cr_expect_eq(own_dir_open(&dir, base), -EPERM);
    cr_assert_eq(chmod(base, 01777), 0);
    cr_expect_eq(own_dir_open(&dir, base), 0);
    cr_assert_eq(chmod(base, 0755), 0);
    cr_expect_eq(own_dir_open(&dir, base), 0);
    if (!geteuid()) {
        cr_assert_eq(chown(base, 12345, 0), 0);
        cr_expect_eq(own_dir_open(&dir, base), -EPERM);
    }
    name_of(name, sizeof(name), 0);
    cr_expect_eq(own_dir_open(&dir, name), -ENOENT);
    fclose(fopen(name, "w"));
    cr_expect_eq(own_dir_open(&dir, name), -ENOTDIR);
}

Test(own_file, is_where_the_directory_was, .init = start, .fini = end)
{
    char longest[5000];
    void *at;

    cr_assert_eq(chdir(base), 0);
    cr_assert_eq(mkdir("sub", 0700), 0);
    cr_assert_eq(own_dir_open(&dir, "sub"), 0);
    cr_assert_eq(chdir("/"), 0);
    cr_expect_eq(own_file_map(&dir, "", 4096, NULL, &at), 0);
    memset(longest, 'a', sizeof(longest));
    longest[sizeof(longest) - 1] = 0;
    cr_expect_eq(own_dir_open(&dir, longest), -ENAMETOOLONG);
}

/* A file above the limit would be the program's end, by SIGXFSZ. */
Test(own_file, heeds_the_limit_of_file_sizes, .init = start, .fini = end)
{
    struct rlimit limit = {4096, RLIM_INFINITY};
    void *at;

    cr_assert_eq(own_dir_open(&dir, base), 0);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_expect_eq(own_file_map(&dir, "", 8192, NULL, &at), -EFBIG);
    cr_expect_eq(own_file_map(&dir, "", 4096, NULL, &at), 0);
    limit.rlim_cur = RLIM_INFINITY; /* for what Criterion has to say */
    setrlimit(RLIMIT_FSIZE, &limit);
}

static int made;

static void make_one(void)
{
    void *at;

    made = own_file_map(&dir, ".x", 8192, NULL, &at);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STACK_MOST 8192 /* much of it is the sanitizer's */
#else
#define STACK_MOST 1024
#endif

/* Signal handlers fork, on stacks of the least size that there is. */
Test(own_file, needs_little_stack, .init = start, .fini = end)
{
    static char stack[16384];
    static size_t unused;
    ucontext_t here, there;

    cr_assert_eq(own_dir_open(&dir, base), 0);
    make_one(); /* what it calls is bound */
    memset(stack, 1, sizeof(stack));
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = sizeof(stack);
    there.uc_link = &here;
    makecontext(&there, make_one, 0);
    swapcontext(&here, &there);
    cr_expect_eq(made, 0);
    while (stack[unused] == 1)
        unused++;
    cr_expect_lt(sizeof(stack) - unused, STACK_MOST, "%zu used",
                 sizeof(stack) - unused);
}
