/* SPDX-License-Identifier: BSD-3-Clause */
/* In whose code a thread is, told from the modules and functions of its
 * frames, from the outermost to the innermost. */
#include <string.h>

#include "remote.h"
#include "symbols.h"

struct function {
    const char *name; /* with a '*' at the end: what begins like that */
    enum remote_kind kind;
};

/* By the outermost function of the library in a run of its frames. */
static const struct function of_lapse[] = {
    {"arch_entries", IN_HOOK}, {"free_hook", IN_HOOK}, {"hook_*", IN_HOOK},
    {"drainer_main", IN_DRAINER}, {"lapse_poll", IN_POLL},
    {"lapse_sync", IN_SYNC}, {"lapse_drain", IN_SYNC},
    {"lapse_watch", IN_WATCH}, {"lapse_unwatch", IN_WATCH},
    {"lapse_publish*", IN_HOOK}, {NULL, IN_LIBRARY},
};

static const struct function of_libc[] = {
    {"malloc", IN_ALLOCATOR}, {"free", IN_ALLOCATOR},
    {"calloc", IN_ALLOCATOR}, {"realloc", IN_ALLOCATOR},
    {"reallocarray", IN_ALLOCATOR}, {"memalign", IN_ALLOCATOR},
    {"aligned_alloc", IN_ALLOCATOR}, {"posix_memalign", IN_ALLOCATOR},
    {"valloc", IN_ALLOCATOR}, {"pvalloc", IN_ALLOCATOR},
    {"malloc_trim", IN_ALLOCATOR}, {"malloc_stats", IN_ALLOCATOR},
    {"mallinfo*", IN_ALLOCATOR}, {"malloc_info", IN_ALLOCATOR},
    {"mallopt", IN_ALLOCATOR}, {"int_free", IN_ALLOCATOR},
    {"int_malloc", IN_ALLOCATOR}, {"malloc_arena_thread_freeres",
    IN_ALLOCATOR}, {"dlopen*", IN_LOADER}, {"dlmopen*", IN_LOADER},
    {"dlclose*", IN_LOADER}, {"dlsym*", IN_LOADER}, {"dlvsym*", IN_LOADER},
    {"dladdr*", IN_LOADER}, {"dl_iterate_phdr", IN_LOADER},
    {NULL, REMOTE_KINDS},
};

static bool is_called(const char *symbol, const char *name)
{
    size_t length = strlen(name);

    return name[length - 1] == '*' ? !strncmp(symbol, name, length - 1)
                                   : !strcmp(symbol, name);
}

static enum remote_kind kind_of(const struct function *f, const char *symbol)
{
    for (; f->name; f++)
        if (symbol && is_called(symbol, f->name))
            break;
    return f->kind;
}

/* As its users call it: glibc's own names for it begin otherwise. */
static const char *plain(const char *symbol)
{
    static const char *const before[] = {"__GI_", "__libc_", "_"};

    for (size_t i = 0; symbol && i < sizeof(before) / sizeof(*before);)
        if (!strncmp(symbol, before[i], strlen(before[i])))
            symbol += strlen(before[i]);
        else
            i++;
    return symbol;
}

static void add(struct remote_thread *t, enum remote_kind kind,
                const char *function)
{
    struct remote_place *last =
        t->places ? &t->place[t->places - 1] : NULL;

    if (t->places == REMOTE_PLACES || (last && last->kind == kind))
        return;
    t->place[t->places++] = (struct remote_place){kind, function, -1};
}

/*
 * Whose turn it is to call back is said by a word in the library's table of
 * subscribers: the thread pointer of that thread. The last of each entry, so
 * that the place tells the number, whatever the size of an entry.
 */
static int subscriber_of(const struct remote *r, const struct remote_thread *t,
                         const struct remote_module *library)
{
    enum { SUBSCRIBERS = 64, PART = 4096 };
    uint64_t at, size, words[PART];

    if (!t->pointer || !library->elf ||
        !symbols_locate(library->file, "lapse_subscribers", &at, &size))
        return -1;
    for (uint64_t done = 0; done < size; done += sizeof(words)) {
        uint64_t n = size - done < sizeof(words) ? size - done : sizeof(words);

        if (!remote_read(r, library->bias + at + done, words, n))
            return -1;
        for (uint64_t i = 0; i < n / 8; i++)
            if (words[i] == t->pointer)
                return (int)((done + i * 8) * SUBSCRIBERS / size);
    }
    return -1;
}

/* The library calls libc and the loader for itself, too; a callback may have
 * jumped there, and left no frame. */
static void place_called(const struct remote *r, struct remote_thread *t,
                         const struct remote_module *library,
                         const struct remote_frame *f, enum remote_kind kind)
{
    bool program = !remote_is_libc(f->module) && !remote_is_loader(f->module);
    int subscriber;

    if (kind == IN_HOOK && program)
        add(t, IN_INLINE, f->symbol);
    if (kind != IN_DRAINER && kind != IN_SYNC)
        return;
    subscriber = subscriber_of(r, t, library);
    if (!program && subscriber < 0)
        return;
    add(t, IN_CALLBACK, program ? f->symbol : NULL);
    t->place[t->places - 1].subscriber = subscriber;
}

/* The frames i down to 0 begin with a run of the library's own; the first
 * that is not, of the program, was called by it. Returns that one. */
static size_t place_lapse(const struct remote *r, struct remote_thread *t,
                          size_t i)
{
    const struct remote_module *library = t->frame[i].module;
    enum remote_kind kind = IN_LIBRARY;
    const char *function = t->frame[i].symbol;
    size_t inner = i + 1;

    while (inner && t->frame[inner - 1].module == library) {
        inner--;
        if (kind != IN_LIBRARY)
            continue;
        kind = kind_of(of_lapse, t->frame[inner].symbol);
        if (kind != IN_LIBRARY)
            function = t->frame[inner].symbol;
        /* The entry is the same for all; the hook is within. */
        if (kind == IN_HOOK && !strcmp(function, "arch_entries") && inner &&
            t->frame[inner - 1].module == library)
            function = t->frame[inner - 1].symbol;
    }
    add(t, kind, function);
    if (!inner)
        return 0;
    place_called(r, t, library, &t->frame[inner - 1], kind);
    return inner;
}

void remote_places(struct remote *r, struct remote_thread *t)
{
    for (size_t i = t->frames; i-- > 0;) {
        const struct remote_frame *f = &t->frame[i];
        const char *name = plain(f->symbol);
        enum remote_kind kind;

        if (remote_is_lapse(f->module)) {
            i = place_lapse(r, t, i);
        } else if (remote_is_allocator(f->module)) {
            add(t, IN_ALLOCATOR, f->symbol);
        } else if (remote_is_loader(f->module)) {
            add(t, IN_LOADER, f->symbol);
        } else if (remote_is_libc(f->module) && name) {
            kind = kind_of(of_libc, name);
            if (kind != REMOTE_KINDS)
                add(t, kind, name);
        }
    }
}

const char *remote_kind_name(enum remote_kind kind)
{
    static const char *const names[REMOTE_KINDS] = {
        [IN_HOOK] = "hook",         [IN_INLINE] = "inline handler",
        [IN_DRAINER] = "drainer",   [IN_CALLBACK] = "callback",
        [IN_POLL] = "poll",         [IN_SYNC] = "sync",
        [IN_WATCH] = "watch",       [IN_LIBRARY] = "library",
        [IN_ALLOCATOR] = "allocator", [IN_LOADER] = "loader",
    };

    return names[kind];
}
