/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stacks of releases in a process that does what processes do: from stacks of
 * all kinds, from modules that are gone since, while another thread holds the
 * loader's lock and wants the allocator's. It reads its own trace.
 * api_stacks [SECONDS]
 */
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <ucontext.h>

#include "scripts/trace.h"
#include "scripts/unwind.h"
#include "tests/api.h"

#define PLAIN __attribute__((noinline, noclone))

static struct trace *trace;
static struct frame frames[UNWIND_FRAMES], passing[UNWIND_FRAMES];

static void open_own_trace(void)
{
    char name[PATH_MAX];
    const char *why = NULL;

    snprintf(name, sizeof(name), "%s/%d.0.trace", getenv("LAPSE_TRACE"),
             (int)getpid());
    trace = trace_open(name, &why);
    if (!trace)
        printf("'%s' %s\n", name, why);
    need(trace, "its trace");
}

/* The frames of the last release of this address; 0: it has no stack. */
static size_t stack_of(const void *start, enum unwind_end *end)
{
    const struct trace_record *r;
    unsigned ring;
    size_t n = 0;

    *end = UNWIND_NO_STACK;
    while ((r = trace_next(trace, &ring))) {
        const struct trace_release *release = (const void *)r;

        if (r->kind == TRACE_RELEASE && release->start == (uintptr_t)start)
            n = unwind(trace, r, frames, end);
    }
    return n;
}

static bool has(size_t n, const char *function)
{
    for (size_t i = 0; i < n; i++)
        if (frames[i].symbol && !strcmp(frames[i].symbol, function))
            return true;
    return false;
}

static void stack_has(const char *what, const void *start,
                      const char *function, enum unwind_end wanted)
{
    enum unwind_end end;
    size_t n = stack_of(start, &end);

    if (check(n && has(n, function) && end == wanted,
              "%s: %s, %zu frames, end %d", what, function, n, end))
        return;
    for (size_t i = 0; i < n; i++)
        printf("           %#lx %s %s\n", frames[i].pc,
               frames[i].segment ? frames[i].segment->name : "?",
               frames[i].symbol ? frames[i].symbol : "?");
}

static void *page(void)
{
    void *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    need(p != MAP_FAILED, "memory");
    return p;
}

/* What all of these release. */
static void *released;

PLAIN void release_it(void);
PLAIN void release_it(void)
{
    munmap(released, PAGE);
    KEEP(released);
}

/* Memory with a hole before and behind it. */
#define STACK (32 * PAGE)
static char *island(void)
{
    char *at = mmap(NULL, STACK + 2 * PAGE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    need(at != MAP_FAILED, "memory for a stack");
    munmap(at, PAGE);
    munmap(at + PAGE + STACK, PAGE);
    return at + PAGE;
}

void on_alternate(int sig);
void on_alternate(int sig)
{
    (void)sig;
    release_it();
    KEEP(released);
}

static void on_alternate_stack(void)
{
    stack_t alternate = {.ss_sp = island(), .ss_size = STACK};
    stack_t none = {.ss_flags = SS_DISABLE};
    struct sigaction action = {.sa_handler = on_alternate,
                               .sa_flags = SA_ONSTACK};

    sigaltstack(&alternate, NULL);
    sigaction(SIGUSR1, &action, NULL);
    released = page();
    raise(SIGUSR1);
    sigaltstack(&none, NULL);
    stack_has("a handler on a stack of its own", released, "on_alternate",
              UNWIND_CUT);
}

void on_same(int sig);
void on_same(int sig)
{
    (void)sig;
    release_it();
    KEEP(released);
}

PLAIN void interrupted(void);
PLAIN void interrupted(void)
{
    raise(SIGUSR1);
    KEEP(released);
}

static void on_signal(void)
{
    struct sigaction action = {.sa_handler = on_same};

    sigaction(SIGUSR1, &action, NULL);
    released = page();
    interrupted();
    stack_has("a handler, to what it interrupted", released, "interrupted",
              UNWIND_WHOLE);
}

static ucontext_t outside, inside;

void in_coroutine(void);
void in_coroutine(void)
{
    release_it();
    KEEP(released);
}

static void on_coroutine(void)
{
    getcontext(&inside);
    inside.uc_stack.ss_sp = island();
    inside.uc_stack.ss_size = STACK;
    inside.uc_link = &outside;
    makecontext(&inside, in_coroutine, 0);
    released = page();
    swapcontext(&outside, &inside);
    /* its first function returns to the very beginning of one of libc's, and
     * no table has what is before that */
    stack_has("a coroutine", released, "in_coroutine", UNWIND_NO_TABLE);
}

void *in_thread(void *arg);
void *in_thread(void *arg)
{
    release_it();
    KEEP(arg);
    return arg;
}

static void on_thread(const char *what, char *stack)
{
    pthread_attr_t attr;
    pthread_t thread;

    pthread_attr_init(&attr);
    if (stack)
        pthread_attr_setstack(&attr, stack, STACK);
    released = page();
    need(!pthread_create(&thread, &attr, in_thread, NULL), "a thread");
    pthread_join(thread, NULL);
    stack_has(what, released, "in_thread", UNWIND_WHOLE);
}

int in_clone(void *arg);
int in_clone(void *arg)
{
    release_it();
    KEEP(arg);
    return 0;
}

/* They have the TLS of this thread. */
static void on_clone(const char *what, int flags)
{
    pid_t child;

    released = page();
    child = clone(in_clone, island() + STACK, flags | SIGCHLD, NULL);
    need(child > 0 && waitpid(child, NULL, 0) == child, "a clone");
    stack_has(what, released, "in_clone", UNWIND_WHOLE);
}

PLAIN void in_vfork(void);
PLAIN void in_vfork(void)
{
    pid_t child;

    child = vfork();
    if (!child) {
        release_it();
        _exit(0);
    }
    need(child > 0 && waitpid(child, NULL, 0) == child, "a vfork child");
}

static void on_vfork(void)
{
    released = page();
    in_vfork();
    stack_has("a vfork child", released, "in_vfork", UNWIND_WHOLE);
}

/* A library that releases while it is loaded, see victims/lib_release.c. */
static char library[PATH_MAX];

static bool is_library(const struct trace_segment *s)
{
    return s && strstr(s->name, "/lib_release.so");
}

struct met {
    uint64_t pc, ticks;
    size_t count;
};

/* What of it is in the stacks that were recorded since we looked last. */
static struct met meet_library(void)
{
    struct met met = {0};
    const struct trace_record *r;
    enum unwind_end end;
    unsigned ring;

    while ((r = trace_next(trace, &ring))) {
        size_t n = unwind(trace, r, passing, &end);

        for (size_t i = 0; i < n; i++)
            if (is_library(passing[i].segment)) {
                met.pc = passing[i].pc;
                met.ticks = r->ticks;
                met.count++;
            }
    }
    return met;
}

/* Copies the library; `another`: with another build id. */
static void copy_library(const char *to, bool another)
{
    static const char note[] = "\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU";
    static char bytes[1 << 20];
    FILE *from = fopen(library, "r"), *file = fopen(to, "w");
    size_t n = from && file ? fread(bytes, 1, sizeof(bytes), from) : 0;
    char *id = memmem(bytes, n, note, sizeof(note));

    need(n && id, "a library with a build id");
    id[sizeof(note)] ^= another;
    need(fwrite(bytes, 1, n, file) == n && !fclose(file), "a copy of it");
    fclose(from);
}

/* Not the file any more that was loaded: it is of no use. */
static PLAIN void replaced(void)
{
    static char copy[PATH_MAX], other[PATH_MAX];
    const struct trace_record *r;
    size_t met = 0, named = 0;
    enum unwind_end end;
    unsigned ring;

    snprintf(copy, sizeof(copy), "%s/copy.so", getenv("LAPSE_TRACE"));
    snprintf(other, sizeof(other), "%s/other.so", getenv("LAPSE_TRACE"));
    copy_library(copy, false);
    copy_library(other, true);
    need(dlopen(copy, RTLD_NOW) && !rename(other, copy),
         "another one in its place");
    while ((r = trace_next(trace, &ring))) {
        size_t n = unwind(trace, r, passing, &end);

        for (size_t i = 0; i < n; i++)
            if (passing[i].segment && !strcmp(passing[i].segment->name, copy)) {
                met++;
                named += passing[i].symbol || end != UNWIND_NO_TABLE;
            }
    }
    check(met && !named, "a file that was replaced is not used: %zu of %zu "
          "frames", named, met);
}

static uint64_t now(void)
{
    return __builtin_ia32_rdtsc();
}

static void unloaded(void)
{
    void *handle;
    struct met met;
    uint64_t before = now(), there;

    handle = dlopen(library, RTLD_NOW);
    need(handle, "a library");
    there = now();
    dlclose(handle);
    met = meet_library();
    check(met.count >= 4, "a library that is gone has its name (%zu frames)",
          met.count);
    check(is_library(trace_segment(trace, met.pc, there)),
          "its address was its own while it was there");
    check(!trace_segment(trace, met.pc, now()), "and is nobody's now");
    check(!trace_segment(trace, met.pc, before), "nor was it before");
    check(!trace_segment(trace, 4096, now()), "nobody is at address 4096");
}

/* One thread has the loader's lock and wants the arena's ... */
static _Atomic bool stop;
static _Atomic unsigned long loads, frees;

static void *load(void *arg)
{
    while (!atomic_load(&stop)) {
        void *handle = dlopen(library, RTLD_NOW);

        need(handle, "the library again");
        dlclose(handle);
        atomic_fetch_add(&loads, 1);
    }
    return arg;
}

/* ... the other releases with the arena's: all of them have the main one. */
static void *free_all(void *arg)
{
    while (!atomic_load(&stop)) {
        void *p[16];

        for (int i = 0; i < 16; i++) {
            p[i] = malloc(30000);
            KEEP(p[i]);
        }
        for (int i = 0; i < 16; i++)
            free(p[i]);
        atomic_fetch_add(&frees, 1);
    }
    return arg;
}

static void at_once(unsigned seconds)
{
    pthread_t thread[3];
    unsigned long stuck = 0, at[2] = {0, 0};

    mallopt(M_ARENA_MAX, 1);
    mallopt(M_TRIM_THRESHOLD, 4096);
    mallopt(M_TOP_PAD, 0);
    pthread_create(&thread[0], NULL, load, NULL);
    pthread_create(&thread[1], NULL, free_all, NULL);
    pthread_create(&thread[2], NULL, free_all, NULL);
    for (unsigned s = 0; s < seconds || stuck; s++) {
        sleep(1);
        stuck = at[0] == atomic_load(&loads) || at[1] == atomic_load(&frees)
                    ? stuck + 1
                    : 0;
        at[0] = atomic_load(&loads);
        at[1] = atomic_load(&frees);
        if (stuck == 20) {
            check(false, "HUNG after %u s, %lu loads", s, at[0]);
            _exit(1);
        }
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    check(at[0] > 10 && at[1] > 10, "no hang: %lu loads, %lu rounds of free",
          at[0], at[1]);
}

/* What is in the rings at the end is right, or not known. */
static void all_right(void)
{
    unsigned long whole = 0, unknown = 0, wrong = 0;
    const struct trace_record *r;
    enum unwind_end end;
    unsigned ring;

    while ((r = trace_next(trace, &ring))) {
        if (r->kind != TRACE_RELEASE)
            continue;
        unwind(trace, r, passing, &end);
        if (end == UNWIND_WHOLE)
            whole++;
        else if (end == UNWIND_NO_MODULE)
            unknown++;
        else
            wrong++;
    }
    trace_refresh(trace);
    check(whole && !wrong && !trace_damaged(trace),
          "%lu stacks whole, %lu into a library the map had no room for, "
          "%lu otherwise", whole, unknown, wrong);
    check(trace_head(trace)->segments_len <= TRACE_SEGMENT_BYTES &&
              !unknown == !trace_head(trace)->segments_lost,
          "the map has %lu bytes, %lu modules found no room",
          (unsigned long)trace_head(trace)->segments_len,
          (unsigned long)trace_head(trace)->segments_lost);
}

static int inner(unsigned seconds)
{
    need(lapse_tracing(), "a trace of its own");
    open_own_trace();
    on_alternate_stack();
    on_signal();
    on_coroutine();
    on_thread("a thread", NULL);
    on_thread("a thread on a user's stack", island());
    on_clone("a clone with our memory", CLONE_VM);
    on_clone("a clone that we wait for", CLONE_VM | CLONE_VFORK);
    on_vfork();
    unloaded();
    replaced();
    at_once(seconds);
    all_right();
    trace_close(trace);
    unwind_free();
    return api_end();
}

static void clean(const char *dir)
{
    DIR *list = opendir(dir);
    struct dirent *entry;

    while (list && (entry = readdir(list)))
        unlinkat(dirfd(list), entry->d_name, 0);
    if (list)
        closedir(list);
    rmdir(dir);
}

int main(int argc, char **argv)
{
    char beside[PATH_MAX + 32];
    char dir[] = "/dev/shm/api_stacks.XXXXXX";
    unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 3;
    int status = 1;
    pid_t child;

    setvbuf(stdout, NULL, _IOLBF, 0);
    snprintf(beside, sizeof(beside), "%s", argv[0]);
    *strrchr(beside, '/') = 0;
    strcat(beside, "/victims/lib_release.so");
    if (!realpath(beside, library))
        need(false, "its library");
    if (getenv("LAPSE_TRACE"))
        return inner(seconds);
    need(mkdtemp(dir), "a directory");
    setenv("LAPSE_TRACE", dir, 1);
    setenv("LAPSE_STACKS", "16", 1);
    child = fork();
    if (!child)
        execv("/proc/self/exe", argv);
    waitpid(child, &status, 0);
    clean(dir);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
