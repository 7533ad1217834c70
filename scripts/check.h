/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every way in which memory leaves a process, done for once in a process of its
 * own, on a range that somebody watches. One table (check_rows.c), used by
 * `lapse check` and by tests/oracle.
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lapse.h"
#include "oracle.h"

enum {
    CHECK_PAGES = 8, /* watched */
    CHECK_BYTES = CHECK_PAGES * PAGE_BYTES,
    HUGE_BYTES = 2 << 20,
    CHECK_TEXT = 160
};

/* Where a row does its release. Zeroed before setup. */
struct scene {
    char *addr;       /* the watched range: CHECK_PAGES pages */
    char *named;      /* what the release names; NULL: only the allocator or */
    size_t named_len; /* the loader knows */
    char why[CHECK_TEXT]; /* it cannot be done here */
    /* of the row */
    int fd, other_fd, id;
    char *block, *other;
    size_t size;
    void *library;
};

/* What a row is like, beyond "memory goes stale, and that is told". */
enum {
    ROW_KEEPS = 1,    /* releases nothing, whatever its name says */
    ROW_MAY_KEEP = 2, /* the kernel or the allocator may keep the memory */
    ROW_FREE = 4,     /* free by the byte: needs LAPSE_FREE=1 */
    ROW_ALLOCATOR = 8 /* what malloc does, which may keep the memory too */
};

struct check_row {
    const char *name;
    const char *path;  /* of the row of lapse_coverage that is to see it;
                          NULL: that of the counter that moves */
    const char *where; /* what that row's begins with; NULL: anything */
    unsigned flags;
    bool (*setup)(struct scene *scene);
    bool (*release)(struct scene *scene); /* false: see why */
    void (*give_back)(struct scene *scene); /* the address again; NULL: mmap */
};
extern const struct check_row check_rows[];
extern const unsigned check_row_count;

/*
 * For rows. cannot() is always false: why it cannot be done, and what errno
 * says; done() calls it if it did not succeed.
 */
bool cannot(struct scene *scene, const char *what);
bool done(struct scene *scene, bool succeeded, const char *what);
void release_names(struct scene *scene, void *addr, size_t len);
void *check_symbol(const char *name); /* in this process, or NULL */
static inline char *page_of(struct scene *scene, unsigned page)
{
    return scene->addr + (size_t)page * PAGE_BYTES;
}

/* Maps what is not mapped of the watched range. */
void give_back_by_mmap(struct scene *scene);
void check_give_back(const struct check_row *row, struct scene *scene);

/* liblapse, if it is in this process. */
struct shim {
    int (*subscribe)(const struct lapse_subscription *, lapse_handle *);
    int (*watch)(lapse_handle, const void *, size_t);
    int (*poll)(lapse_handle, struct lapse_event *, size_t);
    int (*coverage)(struct lapse_coverage *, size_t);
    int (*stats)(struct lapse_stats *);
    const char *(*path_name)(unsigned);
};
bool shim_find(struct shim *shim);

/* What came of a row; a child writes it into a pipe. */
enum check_outcome {
    CHECK_DONE,
    CHECK_SKIPPED, /* why */
    CHECK_CRASHED, /* why */
    CHECK_HUNG,
    CHECK_TROUBLE /* why: no row can be done */
};
enum check_range { RANGE_NONE, RANGE_EXACT, RANGE_WIDER, RANGE_SHORT };
struct check_result {
    uint32_t outcome;
    uint32_t range;
    uint64_t told; /* one bit for each page */
    struct oracle_verdict verdict;
    uint32_t by;        /* ORACLE_* */
    uint32_t reasons;   /* told */
    uint32_t mechanism; /* of the coverage row */
    uint32_t uncovered; /* by name, and why[] is the reason */
    char path[24]; /* by which it was seen: "" if by none */
    char why[CHECK_TEXT];
};

/* Runs in the child: ends it. index: of check_rows, or -1: is all there? */
_Noreturn void check_child(int index, int fd, const char *allocator);

/* Runs one in a child with that preloaded. */
void check_run(int index, const char *preload, const char *allocator,
               struct check_result *result);

/* A result, in one word and as the exit status sees it. */
enum check_verdict {
    VERDICT_TOLD,      /* it went stale, and was told */
    VERDICT_KEPT,      /* it did not go stale */
    VERDICT_UNCOVERED, /* stale, not told, and the coverage table says so */
    VERDICT_SILENT,    /* stale, not told, and nothing says so */
    VERDICT_SKIPPED,
    VERDICT_BROKEN /* crashed, hung, or the oracles disagree */
};
enum check_verdict check_verdict(const struct check_row *row,
                                 const struct check_result *result);

struct check_table {
    const char *allocator; /* preloaded, NULL: the program's own */
    unsigned count[VERDICT_BROKEN + 1];
};
void check_print_head(const struct check_table *table);
void check_print_row(const struct check_row *row,
                     const struct check_result *result);
void check_print_end(const struct check_table *table);
void check_json_head(const struct check_table *table);
void check_json_row(const struct check_row *row,
                    const struct check_result *result, bool more);
void check_json_end(const struct check_table *table);

/* Names for both. */
const char *check_mechanism_name(unsigned mechanism);
const char *check_range_name(unsigned range);
void check_judges(unsigned by, char text[32]);

#endif
