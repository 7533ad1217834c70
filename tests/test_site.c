/* SPDX-License-Identifier: BSD-3-Clause */
/* All sites of this machine's libc and ld.so, patched for real. */
#include "hooks/site.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hooks/arch.h"
#include "hooks/coverage.h"
#include "hooks/module.h"
#include "shim/sys.h"
#include "tests/fake_hooks.h"

#define PAGE 4096
#define THREADS 4

static struct lapse_coverage row(const char *path, const char *where)
{
    static struct lapse_coverage rows[64];
    int n = lapse_coverage(rows, 64);

    for (int i = 0; i < n; i++)
        if (!strcmp(rows[i].path, path) && !strcmp(rows[i].where, where))
            return rows[i];
    cr_assert_fail("no row %s, %s", path, where);
    return rows[0];
}

Test(site, covers_everything_here)
{
    const struct lapse_coverage *gap;

    sites_patch();
    gap = coverage_gap();
    cr_assert_null(gap, "%s in %s: %s", gap->path, gap->where, gap->detail);
    cr_assert(coverage_complete());
    cr_assert_eq(row("munmap", COVERAGE_LIBC).mechanism, LAPSE_SITE);
}

/* One failing call of each, whose errno is the kernel's. */
static int call_each(int path)
{
    void *none = (void *)PAGE;
    struct iovec vec = {none, PAGE};

    switch (path) {
    case LAPSE_PATH_MUNMAP: return munmap((void *)1, PAGE);
    case LAPSE_PATH_MMAP:
        return mmap(NULL, 0, PROT_NONE, MAP_PRIVATE, -1, 0) == MAP_FAILED
                   ? -1 : 0;
    case LAPSE_PATH_MREMAP:
        return mremap((void *)1, PAGE, PAGE, 0) == MAP_FAILED ? -1 : 0;
    case LAPSE_PATH_BRK: return brk(NULL) ? -1 : 0;
    case LAPSE_PATH_MADVISE: return madvise((void *)1, PAGE, MADV_NORMAL);
    case LAPSE_PATH_SHMDT: return shmdt(none);
    case LAPSE_PATH_SHMAT:
        return shmat(-1, NULL, 0) == (void *)-1 ? -1 : 0;
    case LAPSE_PATH_PROCESS_MADVISE:
        return (int)process_madvise(-1, &vec, 1, MADV_COLD, 0);
    case LAPSE_PATH_FALLOCATE:
        return fallocate(-1, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                         PAGE);
    case LAPSE_PATH_FTRUNCATE: return ftruncate(-1, 0);
    case LAPSE_PATH_TRUNCATE: return truncate("/nonexistent/file", 0);
    case HOOK_OPEN:
        return (int)syscall(SYS_open, "/nonexistent/file", O_RDONLY);
    case HOOK_OPENAT: return open("/nonexistent/file", O_WRONLY | O_TRUNC);
    case HOOK_CREAT: return creat("/nonexistent/file", 0600);
    case HOOK_OPENAT2: return (int)syscall(SYS_openat2, -1, NULL, NULL, 0);
    default: return remap_file_pages(none, PAGE, PROT_READ, 0, 0);
    }
}

Test(site, every_hook_fires_once_and_keeps_result_and_errno)
{
    int errors[HOOK_COUNT], results[HOOK_COUNT];

    for (int path = 0; path < HOOK_COUNT; path++) {
        errno = 0;
        results[path] = call_each(path);
        errors[path] = errno;
    }
    sites_patch();
    for (int path = 0; path < HOOK_COUNT; path++) {
        unsigned long before = fake_count(path);
        int result, error;

        errno = 0;
        result = call_each(path);
        error = errno;
        cr_expect_eq(fake_count(path), before + 1, "%s",
                     lapse_hooks[path].name);
        cr_expect_eq(result, results[path], "%s", lapse_hooks[path].name);
        cr_expect_eq(error, errors[path], "%s", lapse_hooks[path].name);
    }
}

Test(site, sees_what_malloc_releases)
{
    unsigned long before, trimmed;
    void *volatile block; /* or the compiler leaves malloc and free out */
    void *small[64];

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    cr_skip("a sanitizer's malloc gives nothing back");
#endif
    sites_patch();
    before = fake_count(LAPSE_PATH_MUNMAP);
    block = malloc((size_t)64 << 20);
    free(block);
    cr_expect_eq(fake_count(LAPSE_PATH_MUNMAP), before + 1);
    for (int i = 0; i < 64; i++)
        small[i] = malloc(16 * 1024);
    for (int i = 0; i < 63; i++)
        free(small[i]);
    trimmed = fake_count(LAPSE_PATH_MADVISE) + fake_count(LAPSE_PATH_BRK);
    malloc_trim(0);
    cr_expect_gt(fake_count(LAPSE_PATH_MADVISE) + fake_count(LAPSE_PATH_BRK),
                 trimmed);
}

Test(site, sees_what_the_loader_maps_and_unmaps)
{
    unsigned long mapped, unmapped;
    void *library;

    sites_patch();
    mapped = fake_count(LAPSE_PATH_MMAP);
    library = dlopen("libBrokenLocale.so.1", RTLD_NOW); /* part of glibc */
    cr_assert_not_null(library, "%s", dlerror());
    cr_expect_geq(fake_count(LAPSE_PATH_MMAP), mapped + 3);
    unmapped = fake_count(LAPSE_PATH_MUNMAP);
    dlclose(library);
    cr_expect_gt(fake_count(LAPSE_PATH_MUNMAP), unmapped);
}

static char child_stack[64 * 1024] __attribute__((aligned(16)));
void child_lands(void);
__asm__("child_lands: mov $33, %edi; mov $60, %eax; syscall");

Test(site, syscall_passes_all_but_the_hooked)
{
    uintptr_t *top = (uintptr_t *)(child_stack + sizeof(child_stack)) - 8;
    long child;
    int status;

    sites_patch();
    cr_expect_eq(syscall(SYS_gettid), gettid());
    errno = 0;
    cr_expect_eq(syscall(SYS_munmap, 1L, PAGE), -1);
    cr_expect_eq(errno, EINVAL);
    cr_expect_eq(fake_count(LAPSE_PATH_MUNMAP), 1);
    errno = 0;
    cr_expect_eq(syscall(100000), -1);
    cr_expect_eq(errno, ENOSYS);
    /* The child comes back from syscall() on a stack of its own. */
    *top = (uintptr_t)child_lands;
    child = syscall(SYS_clone, (long)(CLONE_VM | CLONE_VFORK | SIGCHLD), top,
                    0L, 0L, 0L);
    cr_assert_gt(child, 0);
    cr_assert_eq(waitpid((pid_t)child, &status, 0), child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 33);
}

Test(site, syscall_passes_the_sixth_argument)
{
    int file = memfd_create("sixth", 0);
    char *page;

    sites_patch();
    cr_assert_eq(ftruncate(file, 2 * PAGE), 0);
    cr_assert_eq(pwrite(file, "B", 1, PAGE), 1);
    page = (char *)syscall(SYS_mmap, NULL, (long)PAGE, (long)PROT_READ,
                           (long)MAP_SHARED, (long)file, (long)PAGE);
    cr_assert_neq(page, MAP_FAILED);
    cr_expect_eq(*page, 'B');
    cr_expect_geq(fake_count(LAPSE_PATH_MMAP), 1);
}

/* Somebody was here before: write their jump over the start of a function. */
static void *foreign_mmap(void *at, size_t size, int protection, int flags,
                          int file, off_t offset)
{
    return (void *)sys(SYS_mmap, at, size, protection, flags, file, offset);
}

static int foreign_munmap(void *at, size_t size)
{
    return (int)sys(SYS_munmap, at, size);
}

static void write_text(const uint8_t *at, const void *bytes, size_t size)
{
    int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);

    cr_assert_eq(pwrite(memory, bytes, size, (off_t)(uintptr_t)at),
                 (ssize_t)size);
    close(memory);
}

static const uint8_t *libc_function(const char *name)
{
    struct module libc;
    size_t size;

    cr_assert(module_find("libc.so.6", &libc));
    return module_function(&libc, name, &size);
}

Test(site, names_whose_patch_it_cannot_go_behind)
{
    const uint8_t *code = libc_function("munmap");
    uint8_t jump[13] = {0x49, 0xbb, [10] = 0x41, 0xff, 0xe3};
    uintptr_t target = (uintptr_t)foreign_munmap;
    struct lapse_coverage is;
    Dl_info us;

    memcpy(jump + 2, &target, sizeof(target));
    write_text(code, jump, sizeof(jump));
    sites_patch();
    is = row("munmap", COVERAGE_LIBC);
    cr_expect_eq(is.mechanism, LAPSE_UNCOVERED);
    cr_assert(dladdr((void *)target, &us));
    cr_expect(strstr(is.detail, "overwritten by a patch of ") == is.detail &&
              strstr(is.detail, us.dli_fname), "%s", is.detail);
    cr_expect_arr_eq(code, jump, sizeof(jump), "their patch was touched");
    cr_expect_eq(row("madvise", COVERAGE_LIBC).mechanism, LAPSE_SITE);
    cr_expect_not(coverage_complete());
    cr_expect_eq(coverage_gap()->path[1], 'u');
}

Test(site, patches_behind_a_patch_that_leaves_the_site)
{
    const uint8_t *code = libc_function("mmap");
    uint8_t jump[6] = {0xff, 0x25}, stub[ARCH_STUB];
    uint8_t *near = mmap((void *)((uintptr_t)code & -(uintptr_t)PAGE), PAGE,
                         PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                         -1, 0);

    /* A jump of 5 bytes; mmap's site begins 12 bytes behind its start. */
    cr_assert(arch_reaches((uintptr_t)code, (uintptr_t)near));
    arch_stub(stub, (uintptr_t)foreign_mmap);
    memcpy(near, stub, sizeof(stub));
    cr_assert_eq(mprotect(near, PAGE, PROT_READ | PROT_EXEC), 0);
    arch_jump(jump, (uintptr_t)code, (uintptr_t)near);
    write_text(code, jump, ARCH_WINDOW);
    sites_patch();
    cr_expect_eq(row("mmap", COVERAGE_LIBC).mechanism, LAPSE_CHAINED, "%s",
                 row("mmap", COVERAGE_LIBC).detail);
    cr_expect(strstr(row("mmap", COVERAGE_LIBC).detail, "behind a patch"));
    cr_expect_arr_eq(code, jump, ARCH_WINDOW, "their patch was touched");
    cr_expect(coverage_complete());
}

Test(site, says_that_libc_has_a_site_elsewhere)
{
    static const uint8_t call[] = {0xb8, 0x4c, 0, 0, 0, 0x0f, 0x05};

    write_text(libc_function("fmtmsg") + 32, call, sizeof(call));
    sites_patch();
    cr_expect_eq(row("truncate", COVERAGE_LIBC).mechanism, LAPSE_UNCOVERED);
    cr_expect(strstr(row("truncate", COVERAGE_LIBC).detail,
                     "none was looked for"));
    cr_expect_eq(row("ftruncate", COVERAGE_LIBC).mechanism, LAPSE_SITE);
    cr_expect_eq(row("open", COVERAGE_LIBC).mechanism, LAPSE_SITE);
}

Test(site, is_patched_once)
{
    sites_patch();
    sites_patch(); /* a second copy of the library finds a foreign patch */
    cr_expect_eq(row("munmap", COVERAGE_LIBC).mechanism, LAPSE_UNCOVERED);
    cr_expect_eq(munmap((void *)1, PAGE), -1);
    cr_expect_eq(fake_count(LAPSE_PATH_MUNMAP), 1);
}

/* Threads that release all the time, half of them with signals blocked. */
static int stop, wrong;

static void release_once(void)
{
    char *at = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool good = at != MAP_FAILED;

    if (good) {
        at[1] = 1;
        good = !madvise(at, 4 * PAGE, MADV_DONTNEED) && !at[1];
        at = mremap(at, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
        good = good && at != MAP_FAILED && !munmap(at, 8 * PAGE) &&
               syscall(SYS_gettid) == gettid() &&
               syscall(SYS_munmap, 1L, 1L) == -1 && errno == EINVAL;
        free(malloc(300 * 1024));
    }
    if (!good) /* relaxed: a flag read after join */
        __atomic_store_n(&wrong, 1, __ATOMIC_RELAXED);
}

static void *storm(void *arg)
{
    sigset_t all;

    sigfillset(&all);
    if (arg)
        pthread_sigmask(SIG_SETMASK, &all, NULL);
    /* relaxed: ends the test, orders nothing */
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        release_once();
    return NULL;
}

static void *spawn(void *arg)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        pid_t child = fork();
        int status = 1;

        if (!child) { /* whatever state the sites are in, they work */
            release_once();
            _exit(wrong);
        }
        if (waitpid(child, &status, 0) != child || status)
            __atomic_store_n(&wrong, 1, __ATOMIC_RELAXED);
    }
    return arg;
}

Test(site, is_patched_under_running_threads, .timeout = 60)
{
    pthread_t threads[THREADS + 1];

    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, storm, (void *)(i & 1));
    pthread_create(&threads[THREADS], NULL, spawn, NULL);
    usleep(20000);
    sites_patch();
    usleep(100000);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i <= THREADS; i++)
        pthread_join(threads[i], NULL);
    cr_expect_not(wrong);
    cr_expect(coverage_complete());
    cr_expect_gt(fake_count(LAPSE_PATH_MREMAP), 0);
}
