/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * C3: a plugin that is bound to libc by itself, by RTLD_DEEPBIND, or has one
 * of its own, by dlmopen(): what it releases is told, from its constructor on,
 * or the coverage table says that it is not.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "api.h"
#include "victims/victim_namespace.h"

#define MIB (1ul << 20)
#define ROUNDS 50
#define AT_ONCE 12

static lapse_handle sub;

static const char *library(void)
{
    static char path[4352];
    ssize_t n = readlink("/proc/self/exe", path, 4096);

    while (n > 0 && path[n - 1] != '/')
        n--;
    strcpy(path + n, "victims/lib_namespace.so");
    return path;
}

static struct lapse_coverage row(const char *name)
{
    struct lapse_coverage rows[64];
    int n = lapse_coverage(rows, 64);

    for (int i = 0; i < n; i++)
        if (!strcmp(rows[i].path, name))
            return rows[i];
    need(false, name);
    return rows[0];
}

/* Was all of it told, and nothing before? */
static bool told(const char *p, size_t len, uint32_t reason)
{
    struct lapse_event e[16];
    size_t covered = 0;
    int n;

    do {
        n = lapse_poll(sub, e, 16);
        for (int i = 0; i < n; i++)
            if (e[i].addr <= (uintptr_t)p &&
                (uintptr_t)p + len <= e[i].addr + e[i].len &&
                (reason == UINT32_MAX || e[i].reason == reason))
                covered = len;
    } while (n == 16 || lapse_pending(sub));
    return covered == len;
}

static char *watched(char *p, size_t len)
{
    need(p && lapse_watch(sub, p, len) == 0, "lapse_watch");
    need(!lapse_pending(sub), "nothing told yet");
    return p;
}

static const struct lib_namespace *open_in(const char *how, void **handle)
{
    const struct lib_namespace *lib;

    *handle = how[0] == 'd' ? dlmopen(LM_ID_NEWLM, library(), RTLD_NOW)
                            : dlopen(library(), RTLD_NOW | RTLD_DEEPBIND);
    if (!*handle)
        return NULL;
    lib = dlsym(*handle, "lib_namespace");
    need(lib != NULL, "lib_namespace");
    return lib;
}

static void test_file(const char *how, const struct lib_namespace *lib)
{
    char name[] = "/dev/shm/lapse.XXXXXX";
    int fd = mkstemp(name);
    char *p;

    need(fd >= 0 && ftruncate(fd, 4 * PAGE) == 0, name);
    p = mmap(NULL, 4 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    need(p != MAP_FAILED, "mmap");
    watched(p, 4 * PAGE);
    need(lib->cut(name, fd) == 0, "cut");
    check(told(p, 4 * PAGE, LAPSE_REASON_FILE), "C3: %s: file", how);
    lapse_unwatch(sub, p, 4 * PAGE);
    munmap(p, 4 * PAGE);
    close(fd);
    unlink(name);
}

static void test_calls(const char *how, const struct lib_namespace *lib)
{
    char *p = watched(fresh(MIB), MIB);

    need(lib->advise(p, MIB) == 0, "madvise");
    check(told(p, MIB, LAPSE_REASON_MADVISE), "C3: %s: madvise", how);
    need(lib->unmap(p, MIB) == 0, "munmap");
    check(told(p, MIB, LAPSE_REASON_MUNMAP), "C3: %s: munmap", how);
    lapse_unwatch(sub, p, MIB);
    p = watched(fresh(MIB), MIB);
    need(lib->raw(p, MIB) == 0, "syscall");
    check(told(p, MIB, LAPSE_REASON_MUNMAP), "C3: %s: syscall()", how);
    lapse_unwatch(sub, p, MIB);
    p = lib->get(MIB);
    watched(p + PAGE, MIB - 2 * PAGE);
    lib->give(p);
    check(told(p + PAGE, MIB - 2 * PAGE, UINT32_MAX), "C3: %s: free", how);
    lapse_unwatch(sub, p + PAGE, MIB - 2 * PAGE);
    test_file(how, lib);
}

static void *in_thread(void *lib)
{
    test_calls("dlmopen, in a thread", lib);
    return NULL;
}

static void test_deepbind(void)
{
    void *handle, *p;
    const struct lib_namespace *lib = open_in("RTLD_DEEPBIND", &handle);

    need(lib != NULL, "dlopen");
    test_calls("RTLD_DEEPBIND", lib);
    /* pointers cross: it is the same libc */
    p = malloc(MIB);
    KEEP(p);
    lib->give(p);
    p = lib->get(MIB);
    free(p);
    dlclose(handle);
}

/* It runs none of our handlers: no call may wait for a lock of the parent's. */
static void test_fork(const struct lib_namespace *lib)
{
    char *p = fresh(PAGE);
    pid_t pid = lib->fork();

    if (pid == 0) {
        bool refused = lapse_watch(sub, p, PAGE) == -ECHILD;

        _exit(munmap(p, PAGE) || !refused);
    }
    check(pid > 0 && wait_for(pid, 60) == 0,
          "dlmopen, fork: its child is refused, and releases");
    munmap(p, PAGE);
}

static void test_dlmopen(void)
{
    struct lapse_stats before = {.size = sizeof before}, after = before;
    const struct lib_namespace *lib;
    pthread_t thread;
    void *handle;

    check(row("dlmopen").mechanism == LAPSE_ABSENT, "C3: there is no second "
          "libc yet: %s", row("dlmopen").detail);
    lapse_stats(&before);
    lib = open_in("dlmopen", &handle);
    need(lib != NULL, "dlmopen");
    lapse_stats(&after);
    check(after.path[LAPSE_PATH_MUNMAP].releases >=
              before.path[LAPSE_PATH_MUNMAP].releases + LIB_NAMESPACE_EARLY,
          "C3: dlmopen: its constructor is seen");
    check(row("dlmopen").mechanism == LAPSE_SITE, "C3: a second libc is "
          "patched: %s", row("dlmopen").detail);
    test_calls("dlmopen", lib);
    pthread_create(&thread, NULL, in_thread, (void *)(uintptr_t)lib);
    pthread_join(thread, NULL);
    test_fork(lib);
    dlclose(handle);
    check(row("dlmopen").mechanism == LAPSE_ABSENT,
          "C3: the second libc is gone");
}

static void test_again(void)
{
    int missed = 0, unpatched = 0;

    for (int i = 0; i < ROUNDS; i++) {
        void *handle;
        const struct lib_namespace *lib = open_in("dlmopen", &handle);
        char *p = watched(fresh(MIB), MIB);

        need(lib != NULL, "dlmopen");
        unpatched += row("dlmopen").mechanism != LAPSE_SITE;
        need(lib->unmap(p, MIB) == 0, "munmap");
        missed += !told(p, MIB, LAPSE_REASON_MUNMAP);
        lapse_unwatch(sub, p, MIB);
        dlclose(handle);
    }
    check(!missed && !unpatched, "C3: %d libcs after another: %d missed, "
          "%d not patched", ROUNDS, missed, unpatched);
}

/* More than there are entries for: said, and those before are seen still. */
static void test_at_once(void)
{
    const struct lib_namespace *lib[AT_ONCE];
    void *handle[AT_ONCE];
    int n = 0, covered = 0, missed = 0;

    for (; n < AT_ONCE && (lib[n] = open_in("dlmopen", &handle[n])); n++)
        if (covered == n && row("dlmopen").mechanism == LAPSE_SITE)
            covered++;
    for (int i = 0; i < n; i++) {
        char *p = watched(fresh(MIB), MIB);

        need(lib[i]->unmap(p, MIB) == 0, "munmap");
        if (!told(p, MIB, LAPSE_REASON_MUNMAP) && i < covered)
            missed++;
        lapse_unwatch(sub, p, MIB);
    }
    check(covered >= 4 && !missed, "C3: %d libcs at once, the first %d "
          "covered, %d missed of those", n, covered, missed);
    check((covered == n) == (row("dlmopen").mechanism == LAPSE_SITE) &&
              (covered == n || row("dlmopen").detail[0]),
          "C3: and the table says so: %s", row("dlmopen").detail);
    while (n)
        dlclose(handle[--n]);
    test_again();
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (SANITIZED) {
        printf("skipped: no sanitizer works in two namespaces\n");
        return 77;
    }
    sub = subscribe(LAPSE_POLL, 0, NULL, NULL);
    test_deepbind();
    test_dlmopen();
    test_again();
    test_at_once();
    return api_end();
}
