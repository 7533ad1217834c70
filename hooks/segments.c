/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A module is in the map from when the loader has mapped it, before any of its
 * code runs, to when the loader begins to take modules away, before the first
 * is unmapped: between two such moments an address of it is its own. What it
 * cannot be sure of is not there, and a lookup finds nothing.
 *
 * Everything here runs with the loader's lock held, or alone, and so do the
 * writers of the area in the file. Entries are appended and stay; readers see
 * one when segments_len says so, and look again when the epoch is another.
 * A child that was forked in the middle: what is in `known` and beyond
 * segments_len was not there yet. Its copy of the area is of its parent's
 * file, to which that one may have added since: what was there when it was
 * forked is what its own memory says.
 */
#include "hooks/segments.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "hooks/namespace.h"
#include "shim/fork.h"
#include "shim/range.h"
#include "shim/report.h"
#include "shim/sys.h"
#include "shim/trace.h"

#define KNOWN_MAX 4096
#define HEADERS_MAX 64
#define NOTES_MAX 2048
#define NOWHERE UINT32_MAX /* there was no room for it */

/* The modules that are there, in the order they came. */
static struct known {
    uintptr_t bias;
    const void *dynamic; /* NULL: free */
    uint32_t at;         /* in the area */
    bool seen;           /* in this round */
} known[KNOWN_MAX];
static size_t known_end; /* all beyond are free */
static size_t next_guess; /* modules are listed in the order they came */

static uint64_t area_len; /* segments_len, to this process */
static uint64_t going; /* ticks when the loader began to; 0: it is at rest */
static bool is_told;

struct object {
    uintptr_t bias;
    const void *dynamic;
    const char *name;
    const ElfW(Phdr) *header;
    size_t headers;
    uint64_t loaded;
};

static bool writing(void)
{
    return observing(OBSERVE_TRACE) && !fork_was_raw();
}

static struct trace_segment *segment_at(uint32_t at)
{
    struct trace_header *h = lapse_trace.header;

    return (struct trace_segment *)((uint8_t *)h + h->segments_at + at);
}

/* Memory that may not be there; `sure`: it is, so if the kernel will not read
 * it for us we can. */
static bool peek(const void *at, void *to, size_t n, bool sure)
{
    struct iovec local = {to, n}, remote = {(void *)at, n};
    long got = sys(SYS_process_vm_readv, sys(SYS_getpid), &local, 1, &remote,
                   1, 0);

    if (got == (long)n)
        return true;
    if (!sure || (got != -EPERM && got != -ENOSYS))
        return false;
    memcpy(to, at, n);
    return true;
}

static void take_build_id(struct trace_segment *s, const uint8_t *notes,
                          size_t n)
{
    while (n >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)notes;
        size_t name = (note->n_namesz + (size_t)3) & ~(size_t)3;
        size_t desc = (note->n_descsz + (size_t)3) & ~(size_t)3;
        const uint8_t *text = notes + sizeof(*note);

        n -= sizeof(*note);
        if (name > n || desc > n - name)
            return;
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
            !memcmp(text, "GNU", 4) && note->n_descsz <= sizeof(s->build_id)) {
            memcpy(s->build_id, text + name, note->n_descsz);
            s->build_id_len = (uint8_t)note->n_descsz;
            return;
        }
        notes = text + name + desc;
        n -= name + desc;
    }
}

static void find_build_id(struct trace_segment *s, const struct object *o)
{
    static uint8_t notes[NOTES_MAX] __attribute__((aligned(8)));

    for (size_t i = 0; i < o->headers && !s->build_id_len; i++) {
        size_t n = o->header[i].p_filesz;

        if (o->header[i].p_type != PT_NOTE)
            continue;
        if (n > sizeof(notes))
            n = sizeof(notes);
        if (peek((const void *)(o->bias + o->header[i].p_vaddr), notes, n,
                 true))
            take_build_id(s, notes, n);
    }
}

static void find_range(struct trace_segment *s, const struct object *o)
{
    s->start = UINTPTR_MAX;
    s->end = 0;
    for (size_t i = 0; i < o->headers; i++) {
        const ElfW(Phdr) *h = &o->header[i];
        uintptr_t start = page_down(o->bias + h->p_vaddr);
        uintptr_t end = page_up(o->bias + h->p_vaddr + h->p_memsz);

        if (h->p_type != PT_LOAD)
            continue;
        if (start < s->start)
            s->start = start;
        if (end > s->end)
            s->end = end;
    }
}

/* The absolute name, as whoever reads it is somewhere else; or none. */
static size_t put_name(char *to, size_t room, const struct object *o)
{
    const char *name = o->name;
    size_t used = 0, len;
    long n;

    /* which is no file, whatever the loader calls it */
    if ((uintptr_t)o->header - getauxval(AT_SYSINFO_EHDR) < PAGE_SIZE)
        name = "[vdso]";
    if (!*name) {
        n = sys(SYS_readlink, "/proc/self/exe", to, room - 1);
        used = n > 0 ? (size_t)n : 0;
    } else if (*name != '/' && *name != '[') {
        n = sys(SYS_getcwd, to, room); /* counts the 0 */
        if (n > 1 && *to == '/') {
            used = (size_t)n - 1;
            to[used++] = '/';
        }
        if (!strncmp(name, "./", 2))
            name += 2;
    }
    len = strlen(name);
    if (len >= room - used)
        len = room - used - 1;
    memcpy(to + used, name, len);
    to[used + len] = 0;
    return used + len + 1;
}

static struct known *known_free(void)
{
    for (size_t i = 0; i < KNOWN_MAX; i++)
        if (!known[i].dynamic) {
            if (i >= known_end)
                known_end = i + 1;
            return &known[i];
        }
    return NULL;
}

static void lost(struct known *k)
{
    if (k)
        k->at = NOWHERE;
    __atomic_fetch_add(&lapse_trace.header->segments_lost, 1,
                       __ATOMIC_RELAXED);
}

static void append(const struct object *o)
{
    static struct {
        struct trace_segment segment;
        char name[PATH_MAX + 256];
    } fresh;
    struct trace_header *h = lapse_trace.header;
    uint64_t at = area_len;
    struct known *k = known_free();
    size_t bytes;

    if (!k) {
        lost(k);
        return;
    }
    *k = (struct known){o->bias, o->dynamic, (uint32_t)at, true};
    memset(&fresh, 0, sizeof(fresh));
    fresh.segment.bias = o->bias;
    fresh.segment.loaded = o->loaded;
    find_range(&fresh.segment, o);
    find_build_id(&fresh.segment, o);
    bytes = sizeof(fresh.segment) +
            put_name(fresh.name, sizeof(fresh.name), o);
    bytes = (bytes + 7) & ~(size_t)7;
    fresh.segment.bytes = (uint32_t)bytes;
    if (fresh.segment.start >= fresh.segment.end ||
        bytes > TRACE_SEGMENT_BYTES - at ||
        !trace_fill(segment_at((uint32_t)at), bytes)) {
        lost(k);
        return;
    }
    memcpy(segment_at((uint32_t)at), &fresh, bytes);
    /* release G1: pairs with the reader's acquire of the epoch or of this */
    __atomic_store_n(&h->segments_len, at + bytes, __ATOMIC_RELEASE);
    area_len = at + bytes;
}

static struct known *known_of(uintptr_t bias, const void *dynamic)
{
    for (size_t i = 0; i < known_end; i++) {
        size_t at = next_guess + i;
        struct known *k = &known[at < known_end ? at : at - known_end];

        if (k->dynamic == dynamic && k->bias == bias) {
            next_guess = (size_t)(k - known) + 1;
            if (next_guess >= known_end)
                next_guess = 0;
            return k;
        }
    }
    return NULL;
}

/* True: it is known, or there is no telling it from others. */
static bool meet(uintptr_t bias, const void *dynamic)
{
    struct known *k = known_of(bias, dynamic);

    if (k)
        k->seen = true;
    return k || !dynamic;
}

static const void *dynamic_of(uintptr_t bias, const ElfW(Phdr) *h, size_t n)
{
    for (; n; n--, h++)
        if (h->p_type == PT_DYNAMIC)
            return (const void *)(bias + h->p_vaddr);
    return NULL;
}

/* Of the loader's own words; only in our namespace does it say them. */
static int take_info(struct dl_phdr_info *info, size_t size, void *loaded)
{
    struct object o = {.bias = info->dlpi_addr,
                       .name = info->dlpi_name,
                       .header = info->dlpi_phdr,
                       .headers = info->dlpi_phnum,
                       .loaded = *(uint64_t *)loaded};

    (void)size;
    o.dynamic = dynamic_of(o.bias, o.header, o.headers);
    if (!meet(o.bias, o.dynamic))
        append(&o);
    return 0;
}

/*
 * From its file's header, which is where the loader put the first segment, if
 * that begins with the first byte of the file. That it is there, and of this
 * module, shows in the place of the dynamic section.
 */
static void take_map(const struct link_map *map, void *loaded)
{
    static ElfW(Phdr) headers[HEADERS_MAX];
    struct object o = {.bias = map->l_addr,
                       .dynamic = map->l_ld,
                       .name = map->l_name ? map->l_name : "",
                       .header = headers,
                       .loaded = *(uint64_t *)loaded};
    ElfW(Ehdr) file;

    if (meet(o.bias, o.dynamic))
        return;
    if (!peek((const void *)map->l_addr, &file, sizeof(file), false) ||
        memcmp(file.e_ident, ELFMAG, SELFMAG) ||
        file.e_phentsize != sizeof(ElfW(Phdr)) ||
        file.e_phnum > HEADERS_MAX ||
        !peek((const void *)(map->l_addr + file.e_phoff), headers,
              file.e_phnum * sizeof(headers[0]), false) ||
        dynamic_of(o.bias, headers, file.e_phnum) != map->l_ld)
        file.e_phnum = 0; /* remembered as one that has no place */
    o.headers = file.e_phnum;
    append(&o);
}

static void begin_round(void)
{
    next_guess = 0;
    for (size_t i = 0; i < known_end; i++) {
        struct known *k = &known[i];

        k->seen = false;
        if (k->at != NOWHERE && k->at >= area_len)
            k->dynamic = NULL; /* forked away before it was there */
    }
}

static void end_round(uint64_t gone_at)
{
    for (size_t i = 0; i < known_end; i++) {
        struct known *k = &known[i];

        if (!k->dynamic || k->seen)
            continue;
        if (k->at != NOWHERE)
            __atomic_store_n(&segment_at(k->at)->unloaded, gone_at,
                             __ATOMIC_RELAXED);
        k->dynamic = NULL;
    }
    /* release G2: pairs with the reader's acquire; what changed is there */
    __atomic_store_n(&lapse_trace.header->epoch,
                     lapse_trace.header->epoch + 1, __ATOMIC_RELEASE);
}

/* Is it there yet? While the loader takes modules away, memory says it. */
static bool is_there(const struct known *k)
{
    char byte;

    return k->dynamic && (!going || peek(k->dynamic, &byte, 1, false));
}

/* The forked child, alone, before its segments_len says of any. */
static uint64_t forked(uint64_t copied)
{
    if (area_len > copied)
        area_len = copied; /* there is no memory for them */
    begin_round();
    for (size_t i = 0; i < known_end; i++)
        if (known[i].dynamic && known[i].at != NOWHERE)
            segment_at(known[i].at)->unloaded =
                is_there(&known[i]) ? 0 : going;
    return area_len;
}

void segments_start(bool told)
{
    uint64_t loaded = 0;

    is_told = told;
    if (!writing())
        return;
    trace_forked = forked;
    if (!told)
        report_warn("modules that come and go are not traced: of an address "
                    "it is known what was there at the start, or at the end");
    begin_round();
    dl_iterate_phdr(take_info, &loaded);
    if (told)
        namespaces_each(take_map, &loaded);
    end_round(0);
}

void segments_changed(bool at_rest)
{
    uint64_t now;

    if (!writing())
        return;
    now = trace_ticks();
    if (!at_rest) {
        going = going ? going : now;
        return;
    }
    begin_round();
    namespaces_each(take_map, &now);
    end_round(going ? going : now);
    going = 0;
}

/* Nobody told us of what came and went since the start. */
void segments_stop(void)
{
    uint64_t loaded = 0;

    if (is_told || !writing())
        return;
    begin_round();
    dl_iterate_phdr(take_info, &loaded);
    end_round(trace_ticks());
}
