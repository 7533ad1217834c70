/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The registrars that come with the cache:
 *     api_rcache_backends DIRECTORY   of libfake_cuda.so and libfake_cudart.so
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "rcache/lapse_rcache_backends.h"
#include "scripts/ring.h"
#include "tests/rcache.h"

#define PAGE ((size_t)4096)

static int failures;

static void expect(bool ok, const char *what, long is)
{
    if (ok)
        return;
    printf("FAILED  %s (%ld)\n", what, is);
    failures++;
}

static char *map(size_t len)
{
    char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    if (p == MAP_FAILED)
        exit(2);
    return p;
}

static lapse_rcache *make(const struct lapse_rcache_ops *ops, int err)
{
    lapse_rcache *c = NULL;

    if (!err)
        err = lapse_rcache_create(ops, NULL, &c);
    if (err) {
        printf("FAILED  to start: %s\n", strerror(-err));
        exit(1);
    }
    return c;
}

static void uring(void)
{
    enum { SLOTS = 16 };
    struct lapse_rcache_ops ops;
    struct ring ring;
    lapse_region *r, *held[SLOTS];
    char *p = map(64 * PAGE);
    int err = ring_open(&ring, 8), file = memfd_create("device", MFD_CLOEXEC);

    if (err == -ENOSYS || err == -EPERM) {
        puts("skip: no io_uring here");
        return;
    }
    if (!err)
        expect(lapse_rcache_uring_open(ring.fd, 20000, &ops) == -EINVAL,
               "uring: too many slots", 0);
    lapse_rcache *c = make(&ops, lapse_rcache_uring_open(ring.fd, SLOTS, &ops));

    for (int i = 0; i < 64; i++) { /* more than there are slots */
        memset(p + i * PAGE, i, PAGE);
        err = lapse_rcache_get(c, p + i * PAGE, PAGE, 3, &r);
        expect(!err, "uring: get", err);
        if (err)
            break;
        int n = ring_do(&ring, IORING_OP_WRITE_FIXED, file, p + i * PAGE,
                        PAGE, i * PAGE, lapse_region_uring_index(r));
        expect(n == (int)PAGE, "uring: write", n);
        lapse_rcache_put(c, r);
    }
    for (int i = 63; i >= 0; i--) { /* read back to another place */
        err = lapse_rcache_get(c, p, PAGE, 3, &r);
        int n = err ? err
                    : ring_do(&ring, IORING_OP_READ_FIXED, file, p, PAGE,
                              i * PAGE, lapse_region_uring_index(r));
        expect(n == (int)PAGE && p[7] == i, "uring: read", n);
        lapse_rcache_put(c, r);
    }
    for (int i = 0; i < SLOTS; i++) {
        err = lapse_rcache_get(c, p + i * PAGE, PAGE, 3, &held[i]);
        expect(!err, "uring: all slots", err);
    }
    err = lapse_rcache_get(c, p + SLOTS * PAGE, PAGE, 3, &r);
    expect(err == -ENOMEM, "uring: all slots in use", err);
    for (int i = 0; i < SLOTS; i++)
        lapse_rcache_put(c, held[i]);
    munmap(p + PAGE, PAGE);
    err = lapse_rcache_get(c, p, 3 * PAGE, 3, &r);
    expect(err == -EFAULT, "uring: a hole", err);
    expect(!lapse_rcache_destroy(c), "uring: destroy", 0);
    lapse_rcache_uring_close(&ops);
    ring_close(&ring);
    puts("uring: ok");
}

static long locked_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmLck: %ld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

static void mlocks(void)
{
    struct lapse_rcache_ops ops;
    lapse_rcache *c = make(&ops, lapse_rcache_mlock_open(&ops));
    char *p = map(64 * PAGE);
    long before = locked_kib();

    touch(c, p + 2 * PAGE, 4 * PAGE);  /* 2 3 4 5 */
    touch(c, p + 4 * PAGE, 6 * PAGE);  /*     4 5 6 7 8 9 */
    touch(c, p + 12 * PAGE, 2 * PAGE); /* 12 13 */
    touch(c, p + 3 * PAGE, 12 * PAGE); /* 3 to 14 */
    expect(locked_kib() - before == 13 * 4, "mlock: 2 to 14", locked_kib());
    lapse_rcache_invalidate(c, p + 10 * PAGE, 1); /* takes 3 to 14 */
    expect(locked_kib() - before == 10 * 4, "mlock: 2 to 9, 12, 13",
           locked_kib());
    lapse_rcache_invalidate(c, p + 2 * PAGE, 1);
    expect(locked_kib() - before == 8 * 4, "mlock: 4 to 9, 12, 13",
           locked_kib());
    munmap(p + 6 * PAGE, PAGE);
    touch(c, p, PAGE);
    expect(locked_kib() - before == 3 * 4, "mlock: 0, 12, 13", locked_kib());
    int err = touch(c, p + 5 * PAGE, 3 * PAGE);
    expect(err == -EFAULT, "mlock: a hole", err);
    mprotect(p + 20 * PAGE, PAGE, PROT_NONE);
    err = touch(c, p + 19 * PAGE, 3 * PAGE);
    expect(err == -EFAULT, "mlock: no access", err);
    expect(stats_of(c).evicted == 0, "mlock: evicted for nothing",
           (long)stats_of(c).evicted);
    expect(locked_kib() - before == 3 * 4, "mlock: 0, 12, 13 still",
           locked_kib());
    expect(!lapse_rcache_destroy(c), "mlock: destroy", 0);
    expect(locked_kib() == before, "mlock: nothing is left", locked_kib());
    lapse_rcache_mlock_close(&ops);
    puts("mlock: ok");
}

static void cuda(const char *directory, const char *name, const char *make_one)
{
    struct lapse_rcache_ops ops;
    char path[4096], *p = map(64 * PAGE);
    lapse_region *r;
    void *lib;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    lib = dlopen(path, RTLD_NOW);
    if (!lib) {
        printf("FAILED  %s\n", dlerror());
        exit(1);
    }
    int *wrong = dlsym(lib, "fake_cuda_wrong");
    int *registered = dlsym(lib, "fake_cuda_registered");
    if (!strcmp(make_one, "cudaSetDevice")) {
        ((int (*)(int))dlsym(lib, make_one))(1);
    } else {
        expect(lapse_rcache_cuda_open(path, &ops) == -ENODEV,
               "cuda: no context", 0);
        ((int (*)(void *))dlsym(lib, make_one))(p);
    }
    lapse_rcache *c = make(&ops, lapse_rcache_cuda_open(path, &ops));

    expect(!touch(c, p, 4 * PAGE), "cuda: get", 0);
    expect(*registered == 1, "cuda: registered", *registered);
    /* The driver refuses what overlaps: the old one goes for it. */
    expect(!touch(c, p + 2 * PAGE, 4 * PAGE), "cuda: overlap", 0);
    expect(*registered == 1, "cuda: one went", *registered);
    lapse_rcache_get(c, p + 2 * PAGE, 4 * PAGE, 1, &r);
    expect(touch(c, p, 4 * PAGE) == -EEXIST, "cuda: overlap in use", 0);
    lapse_rcache_put(c, r);
    /* D1 of a GPU: unmapped, and the same address registered again. */
    for (int i = 0; i < 100; i++) {
        char *q = map(PAGE);

        expect(!touch(c, q, PAGE), "cuda: the same address again", i);
        munmap(q, PAGE);
    }
    for (int i = 0; i < 500 && *registered > 1; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL); /* the thread does */
    expect(!lapse_rcache_destroy(c), "cuda: destroy", 0);
    expect(*registered == 0, "cuda: nothing is left", *registered);
    expect(*wrong == 0, "cuda: wrong calls", *wrong);
    lapse_rcache_cuda_close(&ops);
    dlclose(lib);
    printf("%s: ok\n", name);
}

int main(int argc, char **argv)
{
    struct lapse_rcache_ops ops;

    if (argc != 2)
        return 2;
    uring();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    puts("skip: mlock, which sanitizers make do nothing");
    (void)mlocks;
#else
    mlocks();
#endif
    expect(lapse_rcache_cuda_open("/nowhere.so", &ops) == -ENOENT,
           "cuda: no such library", 0);
    cuda(argv[1], "libfake_cuda.so", "cuCtxPushCurrent_v2");
    cuda(argv[1], "libfake_cudart.so", "cudaSetDevice");
    puts(failures ? "FAILED" : "ok");
    return failures != 0;
}
