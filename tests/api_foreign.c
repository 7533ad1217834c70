/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * I2: somebody else patches the same functions, before us, after us, and takes
 * his patch away while we are active. His hook keeps working; what is released
 * is told, or the coverage table says that it may not be; nobody crashes.
 * Not linked with the library: each case is a child that loads it when it is
 * its turn.
 */
#include <dlfcn.h>

#include "api.h"
#include "victims/victim_patcher.h"

static typeof(lapse_subscribe) *subscribe_;
static typeof(lapse_watch) *watch_;
static typeof(lapse_unwatch) *unwatch_;
static typeof(lapse_poll) *poll_;
static typeof(lapse_coverage) *coverage_;

static lapse_handle sub;
static const struct lib_patcher *theirs;
static char name_of_case[128];

static void *load(const char *file)
{
    static char path[4352];
    ssize_t n = readlink("/proc/self/exe", path, 4096);
    void *handle;

    while (n > 0 && path[n - 1] != '/')
        n--;
    strcpy(path + n, file);
    handle = dlopen(path, RTLD_NOW);
    if (!handle)
        fprintf(stderr, "%s\n", dlerror());
    need(handle != NULL, path);
    return handle;
}

static void load_ours(void)
{
    struct lapse_subscription how = {.size = sizeof how};
    void *lib = load("../liblapse.so");

    subscribe_ = dlsym(lib, "lapse_subscribe");
    watch_ = dlsym(lib, "lapse_watch");
    unwatch_ = dlsym(lib, "lapse_unwatch");
    poll_ = dlsym(lib, "lapse_poll");
    coverage_ = dlsym(lib, "lapse_coverage");
    need(subscribe_(&how, &sub) == 0, "lapse_subscribe");
}

static struct lapse_coverage row(const char *name)
{
    static struct lapse_coverage rows[64];
    int n = coverage_(rows, 64);

    for (int i = 0; i < n; i++)
        if (!strcmp(rows[i].path, name) && !strcmp(rows[i].where, "libc.so.6"))
            return rows[i];
    need(false, name);
    return rows[0];
}

/* One release by the function; is it told, and did they see it? */
static bool release(const char *name, bool *seen)
{
    unsigned long before = theirs->count();
    struct lapse_event e[16];
    char *p = fresh(4 * PAGE);
    bool told = false;
    int n;

    before = theirs->count();
    need(watch_(sub, p, 4 * PAGE) == 0, "lapse_watch");
    if (!strcmp(name, "munmap"))
        need(munmap(p, 4 * PAGE) == 0, name);
    else if (!strcmp(name, "madvise"))
        need(madvise(p, 4 * PAGE, MADV_DONTNEED) == 0 && !*p, name);
    else
        need(mmap(p, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS |
                  MAP_FIXED, -1, 0) == p, name);
    *seen = theirs->count() > before;
    do {
        n = poll_(sub, e, 16);
        for (int i = 0; i < n; i++)
            told |= event_overlaps(&e[i], p, PAGE);
    } while (n == 16 || lapse_pending(sub));
    unwatch_(sub, p, 4 * PAGE);
    return told;
}

/* What is not told must be said: by mechanism, or by whose patch may be why. */
static void judge(const char *name, bool patched, const char *when)
{
    bool seen, told = release(name, &seen);
    struct lapse_coverage r = row(name);
    bool blamed = strstr(r.detail, "lib_patcher.so") != NULL;

    check(seen == patched && (told || (blamed && patched) ||
                              r.mechanism == LAPSE_UNCOVERED),
          "%s, %s: theirs %s, ours %s; table: %u, %s", name_of_case, when,
          seen ? "called" : "not called", told ? "told" : "not told",
          r.mechanism, r.detail);
    if (patched)
        check(blamed, "%s, %s: the table names them", name_of_case, when);
}

static void before_us(const char *name, int kind, int inlined)
{
    need(theirs->patch(name, kind, inlined) == 0, "patch");
    load_ours();
    judge(name, true, "active");
    if (!inlined) {
        bool seen;

        check(release(name, &seen), "%s: what they do by syscall() is told",
              name_of_case);
    }
    need(theirs->unpatch() == 0, "unpatch");
    judge(name, false, "gone");
}

static void after_us(const char *name, int kind, int inlined)
{
    bool seen;

    load_ours();
    check(release(name, &seen) && row(name).mechanism == LAPSE_SITE &&
              !row(name).detail[0], "%s, not there yet: told", name_of_case);
    need(theirs->patch(name, kind, inlined) == 0, "patch");
    judge(name, true, "active");
    if (!inlined)
        check(release(name, &seen), "%s: what they do by syscall() is told",
              name_of_case);
    need(theirs->unpatch() == 0, "unpatch");
    judge(name, false, "gone");
    check(release(name, &seen) && row(name).mechanism == LAPSE_SITE &&
              !row(name).detail[0], "%s, gone: told again", name_of_case);
}

int main(void)
{
    static const char *const names[] = {"munmap", "madvise", "mmap"};
    static const int kinds[] = {5, 12, 13, 14};
    int bad = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    theirs = dlsym(load("victims/lib_patcher.so"), "lib_patcher");
    need(theirs != NULL, "lib_patcher");
    for (int i = 0; i < 3 * 4 * 2 * 2; i++) {
        const char *name = names[i % 3];
        int kind = kinds[i / 3 % 4], inlined = i / 12 % 2, after = i / 24;
        pid_t child = fork();
        int status;

        snprintf(name_of_case, sizeof name_of_case,
                 "I2: %d bytes over %s, %s us, %s", kind, name,
                 after ? "after" : "before", inlined ? "inline" : "syscall()");
        if (!child) {
            (after ? after_us : before_us)(name, kind, inlined);
            _exit(api_end());
        }
        status = wait_for(child, 10);
        if (status) {
            printf("FAILED %s: status %#x\n", name_of_case, status);
            bad = 1;
        }
    }
    return bad;
}
