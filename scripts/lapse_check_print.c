/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of `lapse check`, for people, 100 columns wide. */
#include <stdio.h>
#include <string.h>

#include "check.h"

enum { WIDTH = 100, INDENT = 6 };

static const char *const mechanisms[] = {
    "-", "site", "chained", "asked", "absent", "entry", "kernel",
};

const char *check_mechanism_name(unsigned mechanism)
{
    return mechanism < sizeof(mechanisms) / sizeof(mechanisms[0])
               ? mechanisms[mechanism]
               : "?";
}

const char *check_range_name(unsigned range)
{
    static const char *const names[] = {"no", "exact", "wider", "in part"};

    return range <= RANGE_SHORT ? names[range] : "?";
}

void check_judges(unsigned by, char text[32])
{
    snprintf(text, 32, "%s%s",
             by & ORACLE_URING  ? "io_uring"
             : by & ORACLE_PIPE ? "vmsplice"
                                : "nobody",
             by & ORACLE_PAGEMAP ? ", pagemap" : "");
}

void check_print_head(const struct check_table *table)
{
    printf("Each release is done once on watched memory, in a process with "
           "liblapse%s%s.\n\n", table->allocator ? " and " : "",
           table->allocator ? table->allocator : "");
    printf("%-37s %-16s %-8s %-8s %-7s %s\n", "released by", "seen as", "by",
           "told", "memory", "judged by");
}

/* A line below its row, broken between words. */
static void print_note(const char *head, const char *text)
{
    int column = printf("%*s%s", INDENT, "", head);

    while (*text) {
        int word = (int)strcspn(text, " \n");

        if (column + 1 + word > WIDTH)
            column = printf("\n%*s", INDENT - 1, "") - 1;
        column += printf(" %.*s", word, text);
        text += word;
        text += strspn(text, " \n");
    }
    putchar('\n');
}

static void print_cells(const struct check_row *row,
                        const struct check_result *r)
{
    char judges[32];
    bool told = r->range != RANGE_NONE;

    check_judges(r->by, judges);
    printf("%-37s %-16s %-8s %-8s %-7s %s\n", row->name,
           r->path[0] ? r->path : "-",
           r->path[0] || told ? check_mechanism_name(r->mechanism) : "-",
           check_range_name(r->range), r->verdict.stale ? "stale" : "kept",
           judges);
}

static void print_broken(const struct check_row *row,
                         const struct check_result *r)
{
    if (r->outcome != CHECK_DONE) {
        printf("%s\n", row->name);
        print_note(r->outcome == CHECK_HUNG      ? "HUNG: for 10 seconds"
                   : r->outcome == CHECK_CRASHED ? "CRASHED:"
                                                 : "FAILED:", r->why);
        return;
    }
    print_cells(row, r);
    if (r->verdict.disagree)
        print_note("NOT JUDGED:", "the page that is held and its frame number "
                   "disagree");
    else
        print_note("NOT RELEASED:", "the memory stayed, against what this row "
                   "is for");
}

void check_print_row(const struct check_row *row, const struct check_result *r)
{
    switch (check_verdict(row, r)) {
    case VERDICT_SKIPPED:
        printf("%s\n", row->name);
        print_note("cannot be done here:", r->why);
        break;
    case VERDICT_BROKEN:
        print_broken(row, r);
        break;
    case VERDICT_UNCOVERED:
        print_cells(row, r);
        print_note("not covered:", r->why);
        break;
    case VERDICT_SILENT:
        print_cells(row, r);
        print_note("NOT TOLD:", r->range == RANGE_NONE
                   ? "memory went stale in silence"
                   : "some of the pages that went stale");
        break;
    default:
        print_cells(row, r);
    }
}

void check_print_end(const struct check_table *table)
{
    const unsigned *count = table->count;
    unsigned stale = count[VERDICT_TOLD] + count[VERDICT_UNCOVERED] +
                     count[VERDICT_SILENT];

    printf("\nseen as: the counter of lapse_stats that moved. by: a patched "
           "site or entry, or the kernel.\n"
           "told: exactly the pages released, or wider. memory: does the "
           "address reach other pages now?\n\n");
    printf("%u ways went stale: %u told, %u not covered, %u not told. %u "
           "kept the memory, %u cannot be\ndone here, %u failed.\n", stale,
           count[VERDICT_TOLD], count[VERDICT_UNCOVERED],
           count[VERDICT_SILENT], count[VERDICT_KEPT],
           count[VERDICT_SKIPPED], count[VERDICT_BROKEN]);
}
