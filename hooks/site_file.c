/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls that change files have several sites in libc each, some of them in
 * functions without a name.
 */
#include <string.h>

#include "hooks/caller_ranges.h"
#include "hooks/patched.h"
#include "hooks/place.h"

#define MARGIN 4096 /* around the functions that change files */

static struct text_range whole_libc; /* the text of ours, not a second one */

/* Whose sites they are; open() and one without a hook make openat()'s call. */
static const char *const file_names[] = {
    "open", "openat", "creat", "__open_nocancel", "fallocate", "truncate",
    "ftruncate",
};

static bool find_function(struct place *place, const struct target *target)
{
    for (size_t i = 0; i < sizeof(file_names) / sizeof(file_names[0]); i++) {
        place->code =
            module_function(target->module, file_names[i], &place->size);
        if (place->code && place->site >= place->code &&
            place->site < place->code + place->size)
            return true;
    }
    return false;
}

struct file_rows {
    struct target *target;
    struct window_memo memo;
    struct place row[FILE_ROWS];
};

/* One of several sites that count as one row; a bad one spoils it. */
static void cover_file_site(void *arg, const struct hook *hook,
                            const uint8_t *enter, enum arch_kind kind)
{
    struct file_rows *rows = arg;
    struct target *target = rows->target;
    struct place *row = &rows->row[hook->path - LAPSE_PATH_FALLOCATE];
    struct place place = place_of(hook);

    row->found++;
    place.path = row->path;
    place.kind = kind;
    place.site = enter - ARCH_WINDOW;
    if (kind == ARCH_STRANGE) {
        place_refuse(&place, "one of its sites is not of a known form");
    } else if (find_function(&place, target)) {
        place.entry = place.code;
        if (place_check_function(&place, &rows->memo))
            place_patch(&place, target);
    } else {
        place.code = target->module->text;
        place.size = target->module->text_size;
        if (place_check_text(&place))
            place_patch(&place, target);
    }
    if (row->mechanism == LAPSE_UNCOVERED || place.mechanism == LAPSE_SITE)
        return;
    row->mechanism = place.mechanism;
    row->detail = place.detail;
}

/*
 * They lie together in libc, and looking through all of its text would be a
 * good part of the start of a small program. sites_left() does, when asked.
 */
static struct text_range file_text(const struct module *libc)
{
    struct text_range r = {UINTPTR_MAX, 0};
    uintptr_t text = (uintptr_t)libc->text, at;
    size_t size;

    for (size_t i = 0; i < sizeof(file_names) / sizeof(file_names[0]); i++) {
        at = (uintptr_t)module_function(libc, file_names[i], &size);
        if (!at)
            continue;
        r.start = at < r.start ? at : r.start;
        r.end = at + size > r.end ? at + size : r.end;
    }
    r.start = r.start - text > MARGIN ? r.start - MARGIN : text;
    if (r.end - text + MARGIN > libc->text_size)
        r.end = text + libc->text_size - MARGIN;
    r.end += MARGIN;
    return r;
}

/* Calls found for each site of a call that changes files. */
typedef void found_site(void *arg, const struct hook *hook,
                        const uint8_t *enter, enum arch_kind kind);

static void find_file_sites(uintptr_t start, uintptr_t limit,
                            found_site *found, void *arg)
{
    const uint8_t *at = (const uint8_t *)start + ARCH_BEFORE;
    const uint8_t *end = (const uint8_t *)limit;

    for (; (at = next_enter(at, end)); at += ARCH_ENTER)
        for (const struct hook *h = lapse_hooks + HOOK_FILES;
             h < lapse_hooks + HOOK_COUNT; h++) {
            enum arch_kind kind = arch_site_kind(at, h->nr);

            if (kind != ARCH_NONE && kind != ARCH_HARMLESS)
                found(arg, h, at, kind);
        }
}

void cover_files(struct target *target)
{
    struct text_range r = file_text(target->module);
    struct file_rows rows = {.target = target};

    if (target->where) {
        whole_libc.start = (uintptr_t)target->module->text;
        whole_libc.end = whole_libc.start + target->module->text_size;
    }
    for (int i = 0; i < FILE_ROWS; i++)
        rows.row[i] = place_of(&lapse_hooks[HOOK_FILES + i]);
    find_file_sites(r.start, r.end, cover_file_site, &rows);
    for (struct place *row = rows.row; row < rows.row + FILE_ROWS; row++) {
        row->code = module_function(target->module, row->name, &row->size);
        if (!row->found)
            place_refuse(row, row->code ? place_missing(row)
                                  : "libc defines no function of this name");
        place_finish(row, target);
    }
}

/* Those that were patched are no sites any more, but for what is before. */
static void note_left(void *arg, const struct hook *hook,
                      const uint8_t *enter, enum arch_kind kind)
{
    (void)kind;
    if (!patched_is_site(enter - ARCH_WINDOW))
        *(unsigned *)arg |= 1u << hook->path;
}

bool sites_left(const char *path)
{
    static unsigned known; /* a bit each; bit 31: looked */
    /* relaxed: who does not see it looks again, and finds the same */
    unsigned left = __atomic_load_n(&known, __ATOMIC_RELAXED);

    if (!left) {
        if (whole_libc.start)
            find_file_sites(whole_libc.start, whole_libc.end, note_left,
                            &left);
        __atomic_store_n(&known, left | 1u << 31, __ATOMIC_RELAXED);
    }
    for (int i = HOOK_FILES; i <= HOOK_OPEN; i++)
        if (left >> lapse_hooks[i].path & 1 &&
            !strcmp(lapse_hooks[i].name, path))
            return true;
    return false;
}
