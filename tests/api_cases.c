/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * C1, C2: whatever way memory goes, what goes is covered by the events that
 * are drained after. What went is found without asking the library: a page
 * whose bytes are not there any more, read as a device would (the oracle).
 */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#include "api.h"

#define EVENTS 512
#define PATTERN 0xc3c3c3c3c3c3c3c3ul
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define RW (PROT_READ | PROT_WRITE)
#define FEW 1024 /* pages at most */

static lapse_handle sub;
static struct lapse_event events[EVENTS];
static int event_count;

/* What a case watches. */
static struct {
    char *start;
    size_t pages;
} w;

static void drain(void)
{
    int n;

    event_count = 0;
    do {
        n = lapse_poll(sub, events + event_count, 16);
        need(n >= 0, "lapse_poll");
        event_count += n;
    } while ((n == 16 || lapse_pending(sub)) && event_count < EVENTS - 16);
}

static void fill(void *p, size_t len)
{
    memset(p, (int)(PATTERN & 0xff), len);
    KEEP(p);
}

/* Watches the whole pages of a block, which is filled with the pattern. */
static void watch(void *block, size_t len)
{
    uintptr_t first = ((uintptr_t)block + PAGE - 1) & -PAGE;
    uintptr_t last = ((uintptr_t)block + len) & -PAGE;

    w.start = (char *)first;
    w.pages = (last - first) / PAGE;
    need(w.pages <= FEW, "too much to watch");
    need(lapse_watch(sub, w.start, w.pages * PAGE) == 0, "lapse_watch");
    drain();
}

/* Is there still what was put there? The middle: no allocator writes there. */
static bool is_lost(size_t i)
{
    uint64_t value;

    return !pin_read(w.start + i * PAGE + PAGE / 2, &value) ||
           value != PATTERN;
}

static int told_of(size_t i, uint32_t reason)
{
    int times = 0;

    for (int e = 0; e < event_count; e++)
        times += (reason == UINT32_MAX || events[e].reason == reason) &&
                 event_overlaps(&events[e], w.start + i * PAGE, PAGE);
    return times;
}

/*
 * To be called right after the release. Every page that went must be in some
 * event (of that reason), and no other page of the watch in any.
 */
static void covered(const char *name, uint32_t reason)
{
    size_t lost = 0, missed = 0, extra = 0;

    drain();
    for (size_t i = 0; i < w.pages; i++) {
        bool gone = is_lost(i);

        lost += gone;
        missed += gone && !told_of(i, reason);
        extra += !gone && told_of(i, UINT32_MAX);
    }
    check(lost && !missed && !extra, "%s: %zu of %zu pages went, %zu of them "
          "untold, %zu others told", name, lost, w.pages, missed, extra);
    if (missed || extra)
        for (int e = 0; e < event_count && e < 8; e++)
            printf("  event %#lx+%#zx %s flags %u; watched %p+%#lx\n",
                   events[e].addr, events[e].len,
                   lapse_reason_name(events[e].reason), events[e].flags,
                   (void *)w.start, w.pages * PAGE);
    lapse_unwatch(sub, w.start, w.pages * PAGE);
}
#define ANY UINT32_MAX

/* Nothing went, nothing may be told. */
static void untold(const char *name)
{
    size_t told = 0;

    drain();
    for (size_t i = 0; i < w.pages; i++)
        told += is_lost(i) || told_of(i, ANY);
    check(!told, "%s: %zu pages told or lost", name, told);
    lapse_unwatch(sub, w.start, w.pages * PAGE);
}

static char *filled(size_t len)
{
    char *p = fresh(len);

    fill(p, len);
    return p;
}

static char *watched(size_t len)
{
    char *p = filled(len);

    watch(p, len);
    return p;
}

/* C1: releases that libc makes by itself. */
static void test_blocks(void)
{
    char *p = malloc(1 << 20), *q;

    fill(p, 1 << 20);
    watch(p, 1 << 20);
    free(p);
    covered("free of 1 MiB", ANY);

    p = malloc(1 << 20);
    q = malloc(1 << 20); /* in the way, on one of the two sides */
    fill(p, 1 << 20);
    watch(p, 1 << 20);
    p = realloc(p, 256 << 20);
    covered("realloc up", LAPSE_REASON_MREMAP);
    free(p);
    free(q);

    p = malloc(4 << 20);
    fill(p, 4 << 20);
    watch(p + (1 << 20), 3 << 20);
    p = realloc(p, 2 << 20);
    covered("realloc down", LAPSE_REASON_MREMAP);
    free(p);

    need(posix_memalign((void **)&p, 2 << 20, 1 << 20) == 0, "memalign");
    fill(p, 1 << 20);
    watch(p, 1 << 20);
    free(p);
    covered("free of posix_memalign", ANY);
}

/* Also called in a thread, whose heap is not at the break. */
static void *test_heap(void *name)
{
    static char *block[64];
    char text[64];

    for (int i = 0; i < 64; i++)
        fill(block[i] = malloc(60000), 60000);
    watch(block[20], 60000);
    for (int i = 16; i < 32; i++)
        free(block[i]);
    malloc_trim(0);
    snprintf(text, sizeof text, "malloc_trim, hole in %s", (char *)name);
    covered(text, LAPSE_REASON_MADVISE);

    watch(block[62], 60000);
    for (int i = 63; i > 32; i--)
        free(block[i]);
    malloc_trim(0); /* what free did not give back by itself */
    snprintf(text, sizeof text, "shrinking %s", (char *)name);
    covered(text, ANY);
    for (int i = 0; i < 16; i++)
        free(block[i]);
    free(block[32]);
    return NULL;
}

static void *on_stack(void *unused)
{
    pthread_attr_t attr;
    void *bottom;
    size_t size;

    pthread_getattr_np(pthread_self(), &attr);
    pthread_attr_getstack(&attr, &bottom, &size);
    fill((char *)bottom + size / 2, 1 << 20);
    watch((char *)bottom + size / 2, 1 << 20);
    pthread_attr_destroy(&attr);
    return unused;
}

static const char *library(void)
{
    static char path[4352];
    ssize_t n = readlink("/proc/self/exe", path, 4096);

    while (n > 0 && path[n - 1] != '/')
        n--;
    strcpy(path + n, "victims/lib_release.so");
    return path;
}

static void test_stack_and_loader(void)
{
    pthread_attr_t attr;
    pthread_t thread;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 64 << 20); /* too large to be kept */
    pthread_create(&thread, &attr, on_stack, NULL);
    pthread_join(thread, NULL);
    covered("stack of a thread", ANY);

    for (int i = 0; i < 2; i++) { /* libc keeps this one, and gives it again */
        pthread_create(&thread, NULL, on_stack, NULL);
        pthread_join(thread, NULL);
        covered(i ? "stack that is kept, again" : "stack that is kept",
                LAPSE_REASON_MADVISE);
    }

    for (int i = 0; i < 2; i++) {
        void *handle = dlopen(library(), RTLD_NOW);
        char *bss = handle ? dlsym(handle, "lib_release_bss") : NULL;

        need(bss != NULL, library());
        fill(bss, 64 * PAGE);
        watch(bss, 64 * PAGE);
        dlclose(handle);
        covered(i ? "dlclose, opened again" : "dlclose", ANY);
    }
}

static void test_calls(void)
{
    char *p = watched(64 * PAGE), *q;
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    struct iovec v[30];

    for (int i = 0; i < 30; i++)
        v[i] = (struct iovec){p + (2 * i + 1) * PAGE, PAGE};
    process_madvise(fd, v, 30, MADV_DONTNEED, 0);
    close(fd);
    covered("process_madvise", LAPSE_REASON_MADVISE);

    p = watched(16 * PAGE);
    munmap(p + PAGE, PAGE);
    munmap(p + 3 * PAGE, PAGE + 1);
    covered("munmap, not whole pages", LAPSE_REASON_MUNMAP);

    p = watched(16 * PAGE);
    syscall(SYS_munmap, p + PAGE, PAGE);
    syscall(SYS_madvise, p + 3 * PAGE, PAGE, MADV_DONTNEED);
    covered("syscall()", ANY);

    p = watched(16 * PAGE);
    munmap(p + 8 * PAGE, PAGE); /* it fails at the hole, and did the rest */
    madvise(p + 4 * PAGE, 12 * PAGE, MADV_DONTNEED);
    covered("madvise over a hole", ANY);

    p = watched(4 * PAGE);
    posix_madvise(p, 4 * PAGE, POSIX_MADV_DONTNEED);
    madvise(p, PAGE, MADV_WILLNEED);
    munmap(p + 1, PAGE);
    untold("posix_madvise, WILLNEED, a munmap that fails");
    /* glibc hands on any other number as it is */
    p = watched(8 * PAGE);
    need(posix_madvise(p + PAGE, 3 * PAGE, 24) == 0, "DONTNEED_LOCKED");
    covered("posix_madvise with a number of the kernel's",
            LAPSE_REASON_MADVISE);

    p = watched(4 * PAGE);
    q = mremap(p, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    covered("mremap DONTUNMAP", LAPSE_REASON_MREMAP);
    watch(q, 4 * PAGE);
    p = filled(2 * PAGE);
    mremap(p, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, q + PAGE);
    fill(q + 4 * PAGE - PAGE, PAGE);
    drain();
    check(told_of(1, LAPSE_REASON_REPLACE) && told_of(2, LAPSE_REASON_REPLACE)
              && !told_of(0, ANY) && !told_of(3, ANY),
          "mremap FIXED: its target");
    lapse_unwatch(sub, q, 4 * PAGE);

    p = sbrk(16 * PAGE);
    fill(p, 16 * PAGE);
    watch(p, 16 * PAGE);
    sbrk(-8 * (long)PAGE);
    covered("sbrk down", LAPSE_REASON_BRK);
    sbrk(-8 * (long)PAGE);
}

/* Told as MADVISE, whatever the oracle can see of it now. */
static void advised(const char *name, int advice)
{
    bool told = true;

    drain();
    for (size_t i = 0; i < w.pages; i++)
        told &= told_of(i, LAPSE_REASON_MADVISE) > 0;
    check(told, "%s (%d): told", name, advice);
    lapse_unwatch(sub, w.start, w.pages * PAGE);
}

static void test_advice(void)
{
    char *p = watched(8 * PAGE);

    if (mlock(p, 8 * PAGE) == 0 && madvise(p + PAGE, PAGE, 24) == 0)
        covered("madvise DONTNEED_LOCKED", LAPSE_REASON_MADVISE);
    else
        printf("skip DONTNEED_LOCKED: %s\n", strerror(errno));
    munmap(p, 8 * PAGE);

    p = watched(8 * PAGE);
    if (madvise(p + PAGE, 2 * PAGE, 102) == 0)
        covered("madvise GUARD_INSTALL", LAPSE_REASON_MADVISE);
    else
        printf("skip GUARD_INSTALL: %s\n", strerror(errno));
    munmap(p, 8 * PAGE);

    p = mmap(NULL, 8 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(p != MAP_FAILED, "mmap");
    fill(p, 8 * PAGE);
    watch(p, 8 * PAGE);
    need(madvise(p + PAGE, 2 * PAGE, MADV_REMOVE) == 0, "MADV_REMOVE");
    covered("madvise REMOVE", LAPSE_REASON_MADVISE);
    munmap(p, 8 * PAGE);

    p = watched(8 * PAGE); /* the kernel takes them when it likes */
    need(madvise(p, 8 * PAGE, MADV_FREE) == 0, "MADV_FREE");
    advised("madvise FREE", MADV_FREE);
    munmap(p, 8 * PAGE);
}

static void test_replaced(void)
{
    char *p = watched(8 * PAGE);

    mmap(p + 2 * PAGE, 2 * PAGE, RW, ANON | MAP_FIXED, -1, 0);
    covered("C2: MAP_FIXED over a part", LAPSE_REASON_REPLACE);

    p = filled(16 * PAGE);
    munmap(p + 8 * PAGE, 8 * PAGE);
    watch(p, 8 * PAGE);
    mmap(p + 4 * PAGE, 8 * PAGE, RW, ANON | MAP_FIXED, -1, 0);
    covered("C2: MAP_FIXED, half over nothing", LAPSE_REASON_REPLACE);

    p = watched(8 * PAGE);
    check(mmap(p, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED,
          "C2: NOREPLACE fails");
    mmap(p, PAGE, RW, ANON, -1, 0); /* an address that is only a hint */
    untold("C2: NOREPLACE, hint");
}

/* shmdt detaches what is left of a segment, also when its start is gone. */
static void test_segment_without_start(int id)
{
    char *p = shmat(id, NULL, 0);
    bool told = false;
    int n;

    munmap(p, PAGE);
    lapse_watch(sub, p + 2 * PAGE, PAGE);
    shmdt(p);
    do {
        n = lapse_poll(sub, events, 16);
        for (int i = 0; i < n; i++)
            told |= events[i].addr <= (uintptr_t)p + 2 * PAGE &&
                    events[i].len > 0 &&
                    events[i].addr + events[i].len >=
                        (uintptr_t)p + 3 * PAGE;
    } while (n == 16);
    check(told, "C2: shmdt of a segment whose first page is gone");
    lapse_unwatch(sub, p + 2 * PAGE, PAGE);
}

static void test_segments(void)
{
    int id = shmget(IPC_PRIVATE, 2 * PAGE + 100, IPC_CREAT | 0600);
    int other = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0600);
    char *p = watched(8 * PAGE);

    need(id >= 0 && other >= 0, "shmget");
    shmat(id, p + 2 * PAGE, SHM_REMAP);
    covered("C2: SHM_REMAP, size not of whole pages", LAPSE_REASON_REPLACE);
    shmdt(p + 2 * PAGE);

    p = watched(8 * PAGE);
    shmat(id, p + 2 * PAGE + 123, SHM_REMAP | SHM_RND);
    covered("C2: SHM_REMAP with SHM_RND", LAPSE_REASON_REPLACE);
    shmdt(p + 2 * PAGE);

    p = shmat(id, NULL, 0);
    fill(p, 2 * PAGE + 100);
    watch(p, 3 * PAGE); /* the third page holds the pattern only at first */
    memset(p + 2 * PAGE, (int)(PATTERN & 0xff), PAGE);
    shmdt(p);
    check(shmat(other, p, 0) == p, "C2: another segment at that address");
    covered("C2: shmdt", LAPSE_REASON_SHMDT);
    shmdt(p);
    test_segment_without_start(id);
    shmctl(id, IPC_RMID, NULL);
    shmctl(other, IPC_RMID, NULL);
}

/* With another allocator preloaded: is its munmap there in place of libc's? */
static void is_interposed(void)
{
    Dl_info info;

    need(dladdr(dlsym(RTLD_DEFAULT, "munmap"), &info), "dladdr");
    check(!strstr(info.dli_fname, "libc.so"), "munmap is one of %s",
          info.dli_fname);
}

int main(int argc, char **argv)
{
    bool other = argc > 1 && !strcmp(argv[1], "--other-malloc");
    pthread_t thread;

    setvbuf(stdout, NULL, _IOLBF, 0);
    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* and it stays there */
    sub = subscribe(LAPSE_POLL, 0, NULL, NULL);
    if (other)
        is_interposed();
    if (SANITIZED || other) {
        printf("skipped: free, realloc, malloc_trim are not libc's here\n");
    } else {
        test_blocks();
        test_heap("the heap");
        pthread_create(&thread, NULL, test_heap, "a thread's heap");
        pthread_join(thread, NULL);
    }
    test_stack_and_loader();
    test_calls();
    test_advice();
    test_replaced();
    test_segments();
    return api_end();
}
