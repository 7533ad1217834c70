/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finding the sites. Most calls have one in libc, in the function of that
 * name, which everything inside libc calls too; syscall() has one for all.
 * Those that change files have several, some in functions without a name, and
 * are looked for in all of libc's text. ld.so has its own, and no symbols.
 * What looks in any way unlike what we know is left as it is, and the
 * coverage table says so.
 */
#include "hooks/site.h"

#include <dlfcn.h>
#include <string.h>

#include "hooks/arch.h"
#include "hooks/caller_ranges.h"
#include "hooks/coverage.h"
#include "hooks/hook.h"
#include "hooks/namespace.h"
#include "hooks/patched.h"
#include "hooks/window.h"
#include "shim/log.h"

#define BEGIN_ALIGN 16      /* of functions */
#define BEGIN_DISTANCE 512  /* from a function's begin to its site */
#define FOREIGN_RESYNC 16   /* bytes of broken code behind a foreign patch */
#define FOREIGN_TEXTS 8
#define LOADER_PATHS 3
#define MARGIN 4096 /* around the functions that change files */
#define FILE_ROWS (HOOK_OPEN - HOOK_FILES + 1)

/* Whose sites are patched, and who is told what became of them. */
struct target {
    const struct module *module;
    const struct patcher *patcher;
    const char *where;        /* of the rows; NULL: of one more libc */
    struct site_slots *slots; /* of that one */
    const char *why;          /* and why it is not covered in full */
};

/* A site on its way to being patched. */
struct place {
    const char *path; /* of the row */
    const char *name; /* of its function */
    enum arch_kind kind;
    int nr;
    hook_body *body;
    const uint8_t *code; /* where to look for it: its function, or all text */
    size_t size;
    const uint8_t *site;
    const uint8_t *entry; /* where its function begins, if that is known */
    unsigned found; /* sites like it in that code */
    enum lapse_mechanism mechanism;
    const char *detail; /* "", or with UNCOVERED why */
};

static void refuse(struct place *place, const char *why)
{
    place->mechanism = LAPSE_UNCOVERED;
    place->detail = why;
}

static void append(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);
    size_t n = strnlen(more, size - 1 - used);

    memcpy(text + used, more, n);
    text[used + n] = 0;
}

/* "what BY whom", kept for ever: coverage rows point at it. */
static const char *foreign_text(const char *what, uintptr_t target)
{
    static char texts[FOREIGN_TEXTS][128];
    static unsigned used;
    Dl_info info;
    char *text;

    if (used == FOREIGN_TEXTS)
        return what;
    text = texts[used++];
    append(text, sizeof(texts[0]), what);
    append(text, sizeof(texts[0]), " of ");
    if (target && dladdr((void *)target, &info) && info.dli_fname)
        append(text, sizeof(texts[0]), info.dli_fname);
    else
        append(text, sizeof(texts[0]), "unknown origin");
    return text;
}

/* No site where there should be one: did somebody write over it? */
static const char *why_missing(const struct place *place)
{
    uint8_t bytes[ARCH_SITE];
    uintptr_t target = 0;

    arch_site_bytes(bytes, place->kind, place->nr);
    if (arch_foreign(place->code, place->size, &target))
        return foreign_text("overwritten by a patch", target);
    for (size_t i = 0; i + ARCH_SITE <= place->size; i++) {
        const uint8_t *at = place->code + i;

        if (!memcmp(at + ARCH_WINDOW, bytes + ARCH_WINDOW, ARCH_ENTER) &&
            arch_foreign(at, place->size - i, &target))
            return foreign_text("overwritten by a patch", target);
    }
    return "its site is not of a known form";
}

/* The next instruction that enters the kernel, or what looks like one: its
 * last byte is rare. NULL behind the last. */
static const uint8_t *next_enter(const uint8_t *from, const uint8_t *end)
{
    uint8_t site[ARCH_SITE];
    const uint8_t *enter = site + ARCH_WINDOW;

    arch_site_bytes(site, ARCH_PLAIN, 0);
    for (from += ARCH_ENTER - 1; from < end; from++) {
        from = memchr(from, enter[ARCH_ENTER - 1], (size_t)(end - from));
        if (!from)
            return NULL;
        if (!memcmp(from - (ARCH_ENTER - 1), enter, ARCH_ENTER))
            return from - (ARCH_ENTER - 1);
    }
    return NULL;
}

/* Look through the code that the places have in common, once for all. */
static void find_sites(struct place *places, size_t n)
{
    const uint8_t *at = places->code + ARCH_WINDOW;
    const uint8_t *end = places->code + places->size;

    for (; (at = next_enter(at, end)); at += ARCH_ENTER)
        for (struct place *p = places; p < places + n; p++) {
            uint8_t bytes[ARCH_SITE];

            arch_site_bytes(bytes, p->kind, p->nr);
            if (memcmp(at - ARCH_WINDOW, bytes, ARCH_SITE))
                continue;
            p->site = at - ARCH_WINDOW;
            p->found++;
        }
}

static bool has_one_site(struct place *place)
{
    if (!place->found)
        refuse(place, why_missing(place));
    else if (place->found > 1)
        refuse(place, "it has more than one site");
    return place->found == 1;
}

/* The function's bounds are known, its begin may be patched by somebody. */
static bool check_function(struct place *place, struct window_memo *memo)
{
    uintptr_t target = 0;
    size_t skip = arch_foreign(place->code, place->size, &target);
    size_t limit = skip ? skip + FOREIGN_RESYNC : 1;
    const char *why = NULL;

    for (size_t from = skip; from < limit && from < place->size; from++) {
        why = window_check_next(memo, place->code + from, place->size - from,
                                place->site);
        if (!why)
            break;
    }
    if (why)
        refuse(place, why);
    else if (skip) {
        place->mechanism = LAPSE_CHAINED;
        place->detail = foreign_text("behind a patch", target);
    }
    return !why;
}

/* They are not: look for where it begins, backward from its site. */
static bool check_text(struct place *place)
{
    const uint8_t *begin = (const uint8_t *)((uintptr_t)place->site &
                                             -(uintptr_t)BEGIN_ALIGN);
    const uint8_t *end = place->code + place->size;
    const char *why = "its function's begin was not found";

    for (; begin > place->code + BEGIN_ALIGN &&
           place->site - begin < BEGIN_DISTANCE; begin -= BEGIN_ALIGN) {
        size_t size = (size_t)(end - begin);

        if (!arch_begins(begin))
            continue;
        why = window_check(begin, size < WINDOW_LIMIT ? size : WINDOW_LIMIT,
                           false, place->site);
        if (!why)
            return true;
    }
    refuse(place, why);
    return false;
}

static void note_patched(struct target *target, const struct place *place,
                         int slot, const uint8_t fresh[ARCH_WINDOW])
{
    if (target->where)
        patched_add(place->path, target->where, place->site, fresh,
                    place->entry);
    else if (target->slots->used < SITE_SLOTS)
        target->slots->slot[target->slots->used++] = slot;
}

static void patch_site(struct place *place, struct target *target)
{
    uint8_t old[ARCH_SITE], fresh[ARCH_WINDOW];
    uintptr_t site = (uintptr_t)place->site;
    int slot = arch_slot_take(site, place->kind, place->body);
    uintptr_t entry = slot < 0 ? 0 : near_entry(site, slot);
    const char *why;

    if (slot < 0) {
        refuse(place, "this library has entries for fewer sites");
        return;
    }
    arch_site_bytes(old, place->kind, place->nr);
    arch_jump(fresh, site, entry);
    why = entry ? patch_window(target->patcher, target->module,
                               (uint8_t *)place->site, old, fresh)
                : "no page near by can be made for the way to its hook";
    if (!why) {
        note_patched(target, place, slot, fresh);
        return;
    }
    arch_slot_give(slot);
    refuse(place, why);
}

static void finish(struct target *target, const struct place *place)
{
    if (target->where)
        coverage_set(place->path, target->where, place->mechanism,
                     place->detail);
    else if (place->mechanism == LAPSE_UNCOVERED && !target->why)
        target->why = place->detail;
}

static struct place place_of(const struct hook *hook)
{
    return (struct place){.path = hook ? hook->name : "syscall",
                          .name = hook ? hook->name : "syscall",
                          .kind = hook ? ARCH_PLAIN : ARCH_SYSCALL,
                          .nr = hook ? hook->nr : 0,
                          .body = hook ? hook->body : NULL,
                          .mechanism = LAPSE_SITE,
                          .detail = ""};
}

/* hook NULL: syscall(). */
static void cover_function(const struct hook *hook, struct target *target)
{
    struct place place = place_of(hook);
    struct window_memo memo = {.begin = NULL};

    place.code = module_function(target->module, place.name, &place.size);
    place.entry = place.code;
    if (place.code) {
        find_sites(&place, 1);
        if (has_one_site(&place) && check_function(&place, &memo))
            patch_site(&place, target);
    } else if (!strcmp(place.path, "process_madvise")) {
        /* Newer than the oldest libc we meet; the others always were there. */
        place.mechanism = LAPSE_ABSENT;
    } else
        refuse(&place, "libc defines no function of this name");
    finish(target, &place);
}

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
        refuse(&place, "one of its sites is not of a known form");
    } else if (find_function(&place, target)) {
        place.entry = place.code;
        if (check_function(&place, &rows->memo))
            patch_site(&place, target);
    } else {
        place.code = target->module->text;
        place.size = target->module->text_size;
        if (check_text(&place))
            patch_site(&place, target);
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

static void cover_files(struct target *target)
{
    struct text_range r = file_text(target->module);
    struct file_rows rows = {.target = target};

    for (int i = 0; i < FILE_ROWS; i++)
        rows.row[i] = place_of(&lapse_hooks[HOOK_FILES + i]);
    find_file_sites(r.start, r.end, cover_file_site, &rows);
    for (struct place *row = rows.row; row < rows.row + FILE_ROWS; row++) {
        row->code = module_function(target->module, row->name, &row->size);
        if (!row->found)
            refuse(row, row->code ? why_missing(row)
                                  : "libc defines no function of this name");
        finish(target, row);
    }
}

static struct text_range whole_libc;

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

static void cover_libc(struct target *target)
{
    for (int i = 0; i < HOOK_FILES; i++)
        cover_function(&lapse_hooks[i], target);
    cover_function(NULL, target);
    cover_files(target);
}

static void cover_no_libc(struct target *target)
{
    for (int i = 0; i <= HOOK_FILES + FILE_ROWS; i++) {
        bool any = i == HOOK_FILES + FILE_ROWS;
        struct place place = place_of(any ? NULL : &lapse_hooks[i]);

        refuse(&place, "no libc.so.6 is loaded: static, or not glibc");
        finish(target, &place);
    }
}

static void cover_loader(const struct patcher *patcher)
{
    static const enum lapse_path paths[LOADER_PATHS] = {
        LAPSE_PATH_MUNMAP, LAPSE_PATH_MMAP, LAPSE_PATH_BRK};
    struct module loader = {.text = NULL};
    struct target target = {&loader, patcher, COVERAGE_LOADER, NULL, NULL};
    bool found = module_find(COVERAGE_LOADER, &loader);
    struct place places[LOADER_PATHS];

    for (int i = 0; i < LOADER_PATHS; i++) {
        places[i] = place_of(&lapse_hooks[paths[i]]);
        places[i].code = loader.text;
        places[i].size = loader.text_size;
    }
    if (found)
        find_sites(places, LOADER_PATHS);
    for (struct place *p = places; p < places + LOADER_PATHS; p++) {
        if (!found)
            refuse(p, "no " COVERAGE_LOADER " is loaded");
        else if (has_one_site(p) && check_text(p))
            patch_site(p, &target);
        finish(&target, p);
    }
    namespaces_start(found ? &loader : NULL, patcher);
}

const char *sites_patch_libc(const struct module *libc,
                             const struct patcher *patcher,
                             struct site_slots *slots)
{
    struct target target = {libc, patcher, NULL, slots, NULL};

    cover_libc(&target);
    return target.why;
}

void site_slots_give(struct site_slots *slots)
{
    for (unsigned i = 0; i < slots->used; i++)
        arch_slot_give(slots->slot[i]);
    slots->used = 0;
}

void sites_patch(void)
{
    struct module libc;
    struct patcher patcher;
    struct target target = {&libc, &patcher, COVERAGE_LIBC, NULL, NULL};

    patcher_open(&patcher);
    if (module_find(COVERAGE_LIBC, &libc)) {
        whole_libc.start = (uintptr_t)libc.text;
        whole_libc.end = (uintptr_t)libc.text + libc.text_size;
        cover_libc(&target);
    } else
        cover_no_libc(&target);
    cover_loader(&patcher);
    patched_seal();
    patcher_close(&patcher);
    if (coverage_none())
        log_warn("no release of memory is seen in this program (%s): caches "
                 "must not keep registrations in it. Needed are glibc, linked "
                 "dynamically, and the right to write /proc/self/mem or to "
                 "make memory executable",
                 coverage_gap()->detail);
}
