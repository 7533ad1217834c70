/* SPDX-License-Identifier: BSD-3-Clause */
/* `lapse check`: every way out once, and whether it was told. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "command.h"
#include "preload.h"

struct check {
    bool json, strict;
    const char *only; /* rows whose name has it */
    struct check_table table;
    char library[PATH_MAX];
    char *preload;
};

void lapse_check_help(void)
{
    fputs("Usage: lapse check [OPTION...]\n"
          "Releases memory in every way there is, each in a process of its "
          "own, and shows\nwhich are seen, and whether memory really went "
          "stale.\n\n"
          "  --allocator LIB  with that allocator preloaded: a path, a soname, "
          "or jemalloc,\n"
          "                   tcmalloc, mimalloc, tbbmalloc\n"
          "  --backstop       with the kernel's help: LAPSE_BACKSTOP=uffd\n"
          "  --free           with free by the byte: LAPSE_FREE=1\n"
          "  --only TEXT      only the rows whose name has TEXT in it\n"
          "  --json           as JSON\n"
          "  --strict         fail for what is known not to be covered, too\n"
          "  --help           say this\n\n"
          "The exit status is 0 when every release was told or is known, by "
          "name, not to be\ncovered; 1 when one was neither, or could not be "
          "judged; 125 when nothing could\nbe checked.\n",
          stdout);
}

static const char *soname(const char *name)
{
    static const char *const known[][2] = {
        {"jemalloc", "libjemalloc.so.2"},
        {"tcmalloc", "libtcmalloc_minimal.so.4"},
        {"mimalloc", "libmimalloc.so.2"},
        {"tbbmalloc", "libtbbmalloc_proxy.so.2"},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (!strcmp(name, known[i][0]))
            return known[i][1];
    return name;
}

static bool is_wanted(const struct check *check, const struct check_row *row)
{
    return !check->only || strstr(row->name, check->only);
}

/* A name that nothing has must not pass for a table without faults. */
static bool any_wanted(const struct check *check)
{
    for (unsigned i = 0; i < check_row_count; i++)
        if (is_wanted(check, &check_rows[i]))
            return true;
    return false;
}

/* 0, an exit status, or -1 when help was asked for. */
static int parse(struct check *check, int argc, char **argv)
{
    static const struct option options[] = {
        {"allocator", required_argument, NULL, 'a'},
        {"backstop", no_argument, NULL, 'b'},
        {"free", no_argument, NULL, 'f'},
        {"only", required_argument, NULL, 'o'},
        {"json", no_argument, NULL, 'j'},
        {"strict", no_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int letter;

    opterr = 0;
    optind = 1;
    while ((letter = getopt_long(argc, argv, "+:h", options, NULL)) != -1) {
        switch (letter) {
        case 'a':
            check->table.allocator = soname(optarg);
            break;
        case 'b':
            setenv("LAPSE_BACKSTOP", "uffd", 1);
            break;
        case 'f':
            setenv("LAPSE_FREE", "1", 1);
            break;
        case 'o':
            check->only = optarg;
            break;
        case 'j':
            check->json = true;
            break;
        case 's':
            check->strict = true;
            break;
        case 'h':
            return -1;
        default:
            return command_wrong_option(letter, argv);
        }
    }
    if (argv[optind])
        return misuse("check wants no argument, not '%s'", argv[optind]);
    if (check->table.allocator && strpbrk(check->table.allocator, ": \t\n$"))
        return misuse("--allocator cannot be preloaded: LD_PRELOAD takes no "
                      "name with a space, ':' or '$'");
    if (!any_wanted(check))
        return misuse("--only: no row has '%s' in its name", check->only);
    return 0;
}

/* The allocator, then us, then what there is. */
static bool make_preload(struct check *check)
{
    const char *allocator = check->table.allocator;
    const char *there = getenv("LD_PRELOAD");

    return asprintf(&check->preload, "%s%s%s%s%s", allocator ? allocator : "",
                    allocator ? ":" : "", check->library,
                    there && *there ? ":" : "", there ? there : "") >= 0;
}

/* Can anything be checked at all? 0, or the exit status, which was said. */
static int probe(struct check *check)
{
    struct check_result result;
    const char *allocator = check->table.allocator;

    check_run(-1, check->preload, allocator, &result);
    if (result.outcome == CHECK_DONE)
        return 0;
    if (allocator)
        say("cannot check with '%s': %s; is it installed? (Debian: "
            "libjemalloc2, libtcmalloc-minimal4, libmimalloc2.0, "
            "libtbbmalloc2; or give a path)", allocator, result.why);
    else
        say("cannot check: %s with '%s' preloaded; build it with 'make', or "
            "say where it is with LAPSE_LIBRARY", result.why, check->library);
    return EXIT_TROUBLE;
}

static void check_all(struct check *check)
{
    struct check_table *table = &check->table;
    struct check_result result;
    unsigned done = 0;

    for (unsigned i = 0; i < check_row_count; i++) {
        const struct check_row *row = &check_rows[i];

        if (!is_wanted(check, row))
            continue;
        check_run((int)i, check->preload, table->allocator, &result);
        table->count[check_verdict(row, &result)]++;
        if (check->json)
            check_json_row(row, &result, done++ > 0);
        else
            check_print_row(row, &result);
        fflush(stdout);
    }
}

static int child(int argc, char **argv)
{
    if (argc < 4)
        return EXIT_USAGE;
    check_child(atoi(argv[2]), atoi(argv[3]), argv[4]);
}

int lapse_check(int argc, char **argv)
{
    struct check check = {0};
    const unsigned *count = check.table.count;
    int error;

    if (argc > 1 && !strcmp(argv[1], "--child"))
        return child(argc, argv);
    error = parse(&check, argc, argv);
    if (error < 0) {
        lapse_check_help();
        return 0;
    }
    if (!error)
        error = preload_find(check.library);
    if (error)
        return error;
    if (!make_preload(&check)) {
        say("out of memory");
        return EXIT_TROUBLE;
    }
    error = probe(&check);
    if (!error) {
        (check.json ? check_json_head : check_print_head)(&check.table);
        check_all(&check);
        (check.json ? check_json_end : check_print_end)(&check.table);
    }
    free(check.preload);
    if (error)
        return error;
    if (fflush(stdout) || ferror(stdout)) {
        say("the table could not be written in full");
        return EXIT_TROUBLE;
    }
    return count[VERDICT_SILENT] || count[VERDICT_BROKEN] ||
           (check.strict && count[VERDICT_UNCOVERED]);
}
