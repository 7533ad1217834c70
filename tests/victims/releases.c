/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Releases memory in every way libc knows, a fixed number of times each, also
 * in threads, in a forked child and by calls that fail. It knows nothing of
 * lapse; strace_counts.sh compares what others saw of it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static void check(int good, const char *what)
{
    if (good)
        return;
    perror(what);
    exit(1);
}

static char *map(size_t pages)
{
    char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    check(p != MAP_FAILED, "mmap");
    memset(p, 1, pages * PAGE);
    return p;
}

static void plain(int times)
{
    for (int i = 0; i < times; i++)
        check(!munmap(map(8), 8 * PAGE), "munmap");
}

static void fixed(int times)
{
    char *p = map(4);

    for (int i = 0; i < times; i++)
        check(mmap(p + PAGE, PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
                  p + PAGE, "mmap fixed");
    /* Refused, as there is something: no release, but a call. */
    check(mmap(p, PAGE, PROT_READ,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
              MAP_FAILED && errno == EEXIST, "mmap noreplace");
    check(!munmap(p, 4 * PAGE), "munmap");
}

static void moved(int times)
{
    for (int i = 0; i < times; i++) {
        char *p = map(4), *q = map(4), *to = map(8);

        p = mremap(p, 4 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
        check(p != MAP_FAILED, "mremap grow");
        check(mremap(p, 64 * PAGE, 2 * PAGE, 0) == p, "mremap shrink");
        q = mremap(q, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        check(q == to, "mremap fixed");
        check(!munmap(p, 2 * PAGE) && !munmap(to, 8 * PAGE), "munmap");
    }
}

static void advised(int times)
{
    char *p = map(16);
    struct iovec range = {p, 4 * PAGE};
    int self = pidfd_open(getpid(), 0);

    for (int i = 0; i < times; i++) {
        check(!madvise(p, 4 * PAGE, MADV_DONTNEED), "DONTNEED");
        check(!madvise(p, 4 * PAGE, MADV_WILLNEED), "WILLNEED");
        check(!madvise(p, PAGE, MADV_FREE), "FREE");
    }
    check(!munmap(p + 8 * PAGE, PAGE), "munmap");
    check(madvise(p, 16 * PAGE, MADV_DONTNEED) == -1 && errno == ENOMEM,
          "DONTNEED over a hole");
    process_madvise(self, &range, 1, MADV_COLD, 0);
    /* EINVAL before Linux 6.13 */
    process_madvise(self, &range, 1, MADV_DONTNEED, 0);
    close(self);
    check(!munmap(p, 16 * PAGE), "munmap");
}

static void broken(int times)
{
    void *blocks[1000];

    for (int i = 0; i < times; i++) {
        check(sbrk(64 * PAGE) != (void *)-1, "sbrk up");
        check(sbrk(-64 * PAGE) != (void *)-1, "sbrk down");
    }
    for (size_t i = 0; i < 1000; i++)
        blocks[i] = malloc(1000);
    for (size_t i = 0; i < 1000; i += 2)
        free(blocks[i]);
    malloc_trim(0);
    for (size_t i = 1; i < 1000; i += 2)
        free(blocks[i]);
    malloc_trim(0);
    free(malloc(4 << 20)); /* one mmap and one munmap of malloc's own */
}

static void shared(int times)
{
    int id = shmget(IPC_PRIVATE, 4 * PAGE, IPC_CREAT | 0600);
    char *p = map(4);

    check(id >= 0, "shmget");
    for (int i = 0; i < times; i++) {
        void *at = shmat(id, NULL, 0);

        check(at != (void *)-1 && !shmdt(at), "shmat, shmdt");
    }
    check(shmat(id, p, SHM_REMAP) == p, "shmat SHM_REMAP");
    check(!shmdt(p), "shmdt");
    check(!shmctl(id, IPC_RMID, NULL), "shmctl");
}

static void file_pages(void)
{
    int fd = memfd_create("pages", MFD_CLOEXEC);
    char *p;

    check(fd >= 0 && !ftruncate(fd, 4 * PAGE), "memfd");
    p = mmap(NULL, 4 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    check(p != MAP_FAILED, "mmap file");
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    check(!remap_file_pages(p, PAGE, 0, 2, 0), "remap_file_pages");
    close(fd);
    check(!munmap(p, 4 * PAGE), "munmap");
}

static void cut(int times)
{
    char name[] = "/tmp/releases.XXXXXX";
    int fd = mkstemp(name);

    check(fd >= 0, "mkstemp");
    for (int i = 0; i < times; i++) {
        check(!ftruncate(fd, 4 * PAGE), "ftruncate");
        check(!fallocate(fd, 0, 0, PAGE), "fallocate");
        check(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                         PAGE), "punch");
        check(!truncate(name, PAGE), "truncate");
        close(open(name, O_RDONLY));
        close(open(name, O_WRONLY | O_TRUNC));
        close(creat(name, 0600));
        fclose(fopen(name, "w"));
    }
    check(truncate("/nonexistent", 0) == -1, "truncate nothing");
    check(open("/nonexistent", O_RDWR | O_TRUNC) == -1, "open nothing");
    close(fd);
    unlink(name);
}

static void raw(int times)
{
    for (int i = 0; i < times; i++) {
        long p = syscall(SYS_mmap, NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        check(p != -1, "SYS_mmap");
        check(!syscall(SYS_madvise, p, PAGE, MADV_DONTNEED), "SYS_madvise");
        check(syscall(SYS_mremap, p, 4 * PAGE, 2 * PAGE, 0) == p,
              "SYS_mremap");
        check(!syscall(SYS_munmap, p, 2 * PAGE), "SYS_munmap");
    }
}

static void refused(void)
{
    check(munmap((void *)1, PAGE) == -1 && errno == EINVAL, "munmap 1");
    check(munmap(NULL, 0) == -1 && errno == EINVAL, "munmap nothing");
    check(madvise((void *)1, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL,
          "madvise 1");
    check(mremap((void *)PAGE, PAGE, PAGE, 0) == MAP_FAILED &&
              errno == EFAULT, "mremap nothing");
    check(shmdt((void *)PAGE) == -1 && errno == EINVAL, "shmdt nothing");
    check(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
              MAP_FAILED && errno == EINVAL, "mmap nothing");
}

static void loaded(int times)
{
    for (int i = 0; i < times; i++) {
        void *m = dlopen("libm.so.6", RTLD_NOW);
        void *r = dlopen("libresolv.so.2", RTLD_LAZY | RTLD_LOCAL);

        check(m && r, "dlopen");
        check(!dlclose(m) && !dlclose(r), "dlclose");
    }
    check(!dlopen("libnosuch.so.1", RTLD_NOW), "dlopen nothing");
}

static void *thread(void *arg)
{
    void *blocks[500];

    (void)arg;
    plain(5);
    for (size_t i = 0; i < 500; i++)
        blocks[i] = malloc(2000);
    for (size_t i = 0; i < 500; i++)
        free(blocks[i]);
    raw(1);
    return NULL;
}

static void threaded(int rounds)
{
    pthread_t threads[4];

    for (int i = 0; i < rounds; i++) {
        for (size_t t = 0; t < 4; t++)
            check(!pthread_create(&threads[t], NULL, thread, NULL), "create");
        for (size_t t = 0; t < 4; t++)
            check(!pthread_join(threads[t], NULL), "join");
    }
}

static void forked(void)
{
    int status;
    pid_t pid = fork();

    check(pid >= 0, "fork");
    if (!pid) {
        plain(7);
        advised(2);
        threaded(1);
        loaded(1);
        _exit(0);
    }
    check(waitpid(pid, &status, 0) == pid && !status, "child");
}

static void spawned(void)
{
    char *argv[] = {(char *)"true", NULL};
    pid_t pid;
    int status;

    check(!posix_spawnp(&pid, "true", NULL, NULL, argv, environ), "spawn");
    check(waitpid(pid, &status, 0) == pid && !status, "true");
}

int main(void)
{
    plain(10);
    fixed(6);
    moved(5);
    advised(4);
    broken(3);
    shared(3);
    file_pages();
    cut(5);
    raw(4);
    refused();
    loaded(2);
    threaded(2);
    forked();
    spawned();
    plain(1);
    return 0;
}
