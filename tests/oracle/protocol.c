/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A cache of one registration that follows the protocol of lapse.h, and a
 * release of the memory under it, by one row of the table of `lapse check`.
 * Asked again afterwards, the cache must give a registration of the pages
 * that are there now. Without liblapse in the process nobody tells it, so it
 * gives the old one: what a test of it would miss otherwise.
 *
 * protocol ROW; the exit status says what the registration led to.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "scripts/check.h"

enum {
    SAW_NEW = 0,
    TROUBLE = 1,
    SAW_OLD = 3,
    SAW_OLD_UNCOVERED = 4, /* and the coverage table says so */
    CANNOT = 77
};

static struct shim shim;
static bool has_shim;
static lapse_handle subscription;

static struct {
    bool valid;
    struct oracle pages; /* what is registered */
} entry;

static bool overlaps(const struct lapse_event *e)
{
    uintptr_t start = (uintptr_t)entry.pages.addr;

    return e->addr < start + CHECK_BYTES && e->addr + e->len > start;
}

static void drop(void)
{
    if (entry.valid)
        oracle_let_go(&entry.pages);
    entry.valid = false;
}

static bool drain(void)
{
    struct lapse_event event[16];
    bool hit = false;
    int n;

    if (!has_shim || !lapse_pending(subscription))
        return false;
    do {
        n = shim.poll(subscription, event, 16);
        for (int i = 0; i < n; i++)
            hit |= overlaps(&event[i]);
    } while (n == 16);
    return hit || n < 0;
}

/* The five lines. */
static bool lookup(void)
{
    if (drain())
        drop();
    while (!entry.valid) {
        if (has_shim &&
            shim.watch(subscription, entry.pages.addr, CHECK_BYTES))
            return false;
        if (!oracle_hold(&entry.pages))
            return false;
        entry.valid = true;
        if (drain())
            drop();
    }
    return true;
}

static bool uncovered(const struct check_row *row)
{
    struct lapse_coverage table[128];
    int n = has_shim && row->path ? shim.coverage(table, 128) : 0;

    for (int i = 0; i < n && i < 128; i++)
        if (!strcmp(table[i].path, row->path) &&
            (!row->where || !strncmp(table[i].where, row->where,
                                     strlen(row->where))))
            return table[i].mechanism == LAPSE_UNCOVERED;
    return false;
}

static int judge(const struct check_row *row)
{
    char content[PAGE_BYTES];
    unsigned old = 0, new = 0;

    for (unsigned i = 0; i < CHECK_PAGES; i++)
        if (oracle_read(&entry.pages, i, content)) {
            old += oracle_marked(content, i, "old");
            new += oracle_marked(content, i, "new");
        }
    printf("%u pages by the registration: %u new, %u old%s\n", old + new, new,
           old, old && uncovered(row) ? " (not covered)" : "");
    if (old)
        return uncovered(row) ? SAW_OLD_UNCOVERED : SAW_OLD;
    return new ? SAW_NEW : TROUBLE;
}

static int run(const struct check_row *row)
{
    struct lapse_subscription how = {.size = sizeof(how),
                                     .delivery = LAPSE_POLL};
    struct scene scene = {.fd = -1, .other_fd = -1};

    has_shim = shim_find(&shim);
    if (has_shim && shim.subscribe(&how, &subscription))
        return TROUBLE;
    if (!row->setup(&scene)) {
        puts(scene.why);
        return CANNOT;
    }
    if (!oracle_open(&entry.pages, scene.addr, CHECK_PAGES))
        return TROUBLE;
    oracle_mark_all(&entry.pages, "old");
    if (!lookup())
        return TROUBLE;
    if (!row->release(&scene)) {
        puts(scene.why);
        return CANNOT;
    }
    check_give_back(row, &scene);
    oracle_mark_all(&entry.pages, "new");
    if (!lookup())
        return TROUBLE;
    return judge(row);
}

int main(int argc, char **argv)
{
    bool list = argc == 2 && !strcmp(argv[1], "--list");

    for (unsigned i = 0; i < check_row_count; i++) {
        const struct check_row *row = &check_rows[i];

        if (list)
            printf("%s:%s\n", row->flags & ROW_FREE ? "free"
                   : row->flags & (ROW_KEEPS | ROW_MAY_KEEP) ? "keeps"
                                                             : "goes",
                   row->name);
        else if (argc == 2 && !strcmp(row->name, argv[1])) {
            int status = run(row);

            fflush(stdout);
            /* Not exit: memory may be gone that its handlers know of. */
            _exit(status);
        }
    }
    return list ? 0 : TROUBLE;
}
