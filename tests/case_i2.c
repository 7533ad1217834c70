/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * I2: somebody else hooks munmap too: before us, after us, and is taken out
 * while we are active. Our events keep coming, or lapse_coverage() says that
 * they do not; their hook keeps working, and what they wrote stays.
 * Kinds: a preloaded symbol (lib_plt.so, run with it), the program's table of
 * imports, and a prologue of 14 bytes whose hook enters the kernel by libc's
 * syscall() or by itself. The library is opened where its turn is; one that is
 * preloaded is just found then.
 * --expect-fault: our part is played by a patcher that restores what it saved.
 * Usage: case_i2 [--expect-fault] LIBRARY
 */
#include <dlfcn.h>
#include <sys/syscall.h>

#include "case.h"
#include "case_foreign.h"

static struct {
    int (*subscribe)(const struct lapse_subscription *, lapse_handle *);
    int (*unsubscribe)(lapse_handle);
    int (*watch)(lapse_handle, const void *, size_t);
    int (*poll)(lapse_handle, struct lapse_event *, size_t);
    int (*coverage)(struct lapse_coverage *, size_t);
    void *library;
    struct prologue naive; /* what plays our part in the control */
    lapse_handle s;
    bool subscribed;
} us;

static const char *library;
static unsigned long hook_calls;
extern unsigned long lib_plt_calls __attribute__((weak)); /* of lib_plt.so */

static void find(void *function, const char *name)
{
    *(void **)function = dlsym(us.library, name);
    need(*(void **)function != NULL, name);
}

static int naive_hook(void *p, size_t len)
{
    return (int)syscall(SYS_munmap, p, len);
}

static void *munmap_of_libc(void)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);

    need(libc != NULL, "libc.so.6");
    return dlsym(libc, "munmap");
}

static void we_subscribe(void)
{
    struct lapse_subscription how = {.size = sizeof how};

    need(us.subscribe(&how, &us.s) == 0, "lapse_subscribe");
    us.subscribed = true;
}

static void we_unsubscribe(void)
{
    need(us.unsubscribe(us.s) == 0, "lapse_unsubscribe");
    us.subscribed = false;
}

static void we_come(void)
{
    if (expect_fault) {
        prologue_install(&us.naive, munmap_of_libc(), naive_hook);
        return;
    }
    us.library = dlopen(library, RTLD_NOW);
    if (!us.library)
        fprintf(stderr, "%s\n", dlerror());
    need(us.library != NULL, library);
    find(&us.subscribe, "lapse_subscribe");
    find(&us.unsubscribe, "lapse_unsubscribe");
    find(&us.watch, "lapse_watch");
    find(&us.poll, "lapse_poll");
    find(&us.coverage, "lapse_coverage");
    we_subscribe();
}

static void we_go(void)
{
    if (expect_fault) {
        prologue_remove(&us.naive);
        return;
    }
    we_unsubscribe();
    dlclose(us.library);
}

static bool said_uncovered_now(void)
{
    struct lapse_coverage rows[64];
    int n = us.coverage(rows, 64);

    for (int i = 0; i < n && i < 64; i++)
        if (!strcmp(rows[i].path, "munmap") &&
            !strncmp(rows[i].where, "libc", 4) &&
            rows[i].mechanism == LAPSE_UNCOVERED) {
            printf("        munmap in %s: %s\n", rows[i].where, rows[i].detail);
            return true;
        }
    return false;
}

/* A release of a page that we watch, if we are there; were we told? */
static bool probe(void)
{
    struct lapse_event events[16];
    char *p = fresh(PAGE);
    bool hit = false;
    int n;

    if (us.subscribed)
        need(us.watch(us.s, p, PAGE) == 0, "lapse_watch");
    need(munmap(p, PAGE) == 0, "munmap");
    need(munmap(p + 1, PAGE) == -1 && errno == EINVAL, "munmap that fails");
    while (us.subscribed && (n = us.poll(us.s, events, 16)) > 0)
        for (int i = 0; i < n; i++)
            hit |= event_overlaps(&events[i], p, PAGE);
    return hit;
}

static void know(const char *kind, const char *when)
{
    if (probe())
        check(true, "I2 %s, %s: told", kind, when);
    else
        check(said_uncovered_now(), "I2 %s, %s: not told, and said so", kind,
              when);
}

static int hook_by_libc(void *p, size_t len)
{
    hook_calls++;
    return (int)syscall(SYS_munmap, p, len);
}

static int hook_by_itself(void *p, size_t len)
{
    long ret;

    hook_calls++;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"((long)SYS_munmap), "D"(p), "S"(len)
                     : "rcx", "r11", "memory");
    if (ret < 0)
        errno = (int)-ret;
    return ret < 0 ? -1 : 0;
}

static void *import_was;

static int hook_import(void *p, size_t len)
{
    int (*next)(void *, size_t);

    hook_calls++;
    *(void **)&next = import_was;
    return next(p, len);
}

static struct kind {
    const char *name;
    int (*hook)(void *, size_t);
    bool prologue;
    struct prologue patch;
} kinds[] = {
    {"table of imports", hook_import, false, {NULL, {0}, {0}}},
    {"14 bytes, syscall()", hook_by_libc, true, {NULL, {0}, {0}}},
    {"14 bytes, inline", hook_by_itself, true, {NULL, {0}, {0}}},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static void they_come(struct kind *k)
{
    probe(); /* binds munmap: a stub that does is no function to go on to */
    if (k->prologue)
        prologue_install(&k->patch, munmap_of_libc(), k->hook);
    else
        need(import_replace("munmap", k->hook, &import_was), "an import");
}

static void they_go(struct kind *k)
{
    void *ours;

    if (k->prologue)
        prologue_remove(&k->patch);
    else
        need(import_replace("munmap", import_was, &ours), "an import");
}

/* Their hook is called, and their bytes are there. */
static bool they_work(const struct kind *k)
{
    unsigned long before = hook_calls;

    probe();
    return hook_calls > before &&
           (!k->prologue || prologue_is_there(&k->patch));
}

static void before_us(struct kind *k)
{
    they_come(k);
    we_come();
    know(k->name, "before us");
    check(they_work(k), "I2 %s: works, before us", k->name);
    we_unsubscribe();
    check(they_work(k), "I2 %s: works, we are gone", k->name);
    we_subscribe();
    they_go(k);
    know(k->name, "before us, taken out");
    we_go();
}

static void after_us(struct kind *k)
{
    we_come();
    check(probe(), "I2 %s: told before they come", k->name);
    they_come(k);
    know(k->name, "after us");
    check(they_work(k), "I2 %s: works, after us", k->name);
    we_unsubscribe();
    check(they_work(k), "I2 %s: works, nobody subscribed", k->name);
    we_subscribe();
    know(k->name, "after us, subscribed again");
    they_go(k);
    know(k->name, "after us, taken out");
    check(probe(), "I2 %s: told as before they came", k->name);
    we_go();
}

static void after_us_we_go(struct kind *k)
{
    we_come();
    they_come(k);
    we_go();
    must(they_work(k), "I2 %s: what they wrote stays when we go", k->name);
}

/* Hooks stay where they are put: a process for each. */
static void in_child(void (*scenario)(struct kind *), struct kind *k)
{
    pid_t pid = fork();
    int status;

    need(pid >= 0, "fork");
    if (pid == 0) {
        atomic_store(&api_failures, 0);
        scenario(k);
        exit(api_end());
    }
    status = wait_for(pid, HANG);
    if (status)
        check(false, "I2 %s: wait status %#x", k->name, (unsigned)status);
}

/* lib_plt.so, preloaded before or after us. */
static void preloaded(void)
{
    unsigned long before;

    we_come();
    for (int i = 0; i < 2; i++) {
        before = lib_plt_calls;
        check(probe(), "I2 preloaded symbol: told");
        check(lib_plt_calls > before, "I2 preloaded symbol: works");
        we_unsubscribe();
        before = lib_plt_calls;
        probe();
        check(lib_plt_calls > before, "I2 preloaded symbol: works without us");
        we_subscribe();
    }
    we_go();
}

int main(int argc, char **argv)
{
    (void)argc;
    argv = case_begin(argv);
    library = argv[1];
    need(library != NULL, "the library's path");
    if (&lib_plt_calls)
        preloaded();
    for (size_t i = 0; i < KINDS && !&lib_plt_calls; i++) {
        bool already = with_library(); /* preloaded: nobody is before us */

        if (expect_fault && !kinds[i].prologue)
            continue; /* it needs an owner of the same bytes */
        if (!expect_fault && !already)
            in_child(before_us, &kinds[i]);
        if (!expect_fault)
            in_child(after_us, &kinds[i]);
        in_child(after_us_we_go, &kinds[i]);
    }
    return api_end();
}
