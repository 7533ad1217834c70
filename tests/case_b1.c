/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * B1: with a monitor in the kernel (LAPSE_BACKSTOP=uffd) the thread that
 * releases waits until somebody reads the event. It may hold any lock: main
 * holds M and releases a watched block, the callback takes M; and the callback
 * itself frees another watched block. No hang. Blocks are freed, and unmapped
 * by an inline system call, which only the kernel tells of.
 * --expect-fault: a monitor whose reader takes M before it reads.
 * Usage: case_b1 [--expect-fault]
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/poll.h> /* not shim/poll.h */
#include <sys/syscall.h>

#include "case.h"

#define MIB (1ul << 20)

typedef void release_type(char *);

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static char *block;
static char *_Atomic other; /* the callback's to free */
static atomic_ulong told_of_block, told_of_other;
static lapse_handle sub;

static void by_free(char *p)
{
    free(p);
}

/* A block is a mapping of its own: a page more than was asked for. */
static void by_inline(char *p)
{
    long ret;

    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"((long)SYS_munmap), "D"(p - 16), "S"(MIB + PAGE)
                     : "rcx", "r11", "memory");
    need(ret == 0, "munmap");
}

static release_type *_Atomic release_other;

static void on_event(const struct lapse_event *e, void *arg)
{
    char *p;

    (void)arg;
    pthread_mutex_lock(&m);
    p = atomic_exchange(&other, NULL);
    if (p)
        atomic_load (&release_other)(p);
    pthread_mutex_unlock(&m);
    if (event_overlaps(e, block, MIB))
        atomic_fetch_add(&told_of_block, 1);
    else
        atomic_fetch_add(&told_of_other, 1);
}

static char *watched_block(void)
{
    char *p = malloc(MIB);

    need(p != NULL, "malloc");
    KEEP(p);
    memset(p, 1, MIB);
    need(lapse_watch(sub, p, MIB) == 0, "lapse_watch");
    return p;
}

static bool comes(atomic_ulong *count, unsigned long more)
{
    for (int i = 0; i < 3000 && atomic_load(count) < more; i++)
        sleep_us(1000);
    return atomic_load(count) >= more;
}

static void test_release(const char *name, release_type *release)
{
    unsigned long blocks = atomic_load(&told_of_block);
    unsigned long others = atomic_load(&told_of_other);

    block = watched_block();
    pthread_mutex_lock(&m);
    release(block);
    pthread_mutex_unlock(&m);
    must(true, "B1 %s by the holder of the callback's lock: no hang", name);
    check(comes(&told_of_block, blocks + 1), "B1 %s: told", name);

    block = watched_block();
    blocks = atomic_load(&told_of_block);
    atomic_store(&release_other, release);
    atomic_store(&other, watched_block());
    pthread_mutex_lock(&m);
    release(block);
    pthread_mutex_unlock(&m);
    must(true, "B1 %s, and another block by the callback: no hang", name);
    check(comes(&told_of_block, blocks + 1) &&
              comes(&told_of_other, others + 1),
          "B1 %s: told of both", name);
}

static int open_monitor(char *p, size_t len)
{
    struct uffdio_api api = {.api = UFFD_API,
                             .features = UFFD_FEATURE_EVENT_UNMAP};
    struct uffdio_register range = {.range = {(uintptr_t)p, len},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) ||
        ioctl(fd, UFFDIO_REGISTER, &range)) {
        printf("skipped: userfaultfd with unmap events: %s\n", strerror(errno));
        exit(77);
    }
    return fd;
}

static void *reads(void *arg)
{
    int fd = *(int *)arg;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    struct uffd_msg message;

    poll(&ready, 1, -1);
    pthread_mutex_lock(&m);
    need(read(fd, &message, sizeof message) == sizeof message, "read");
    pthread_mutex_unlock(&m);
    return NULL;
}

static void show_fault(void)
{
    pid_t pid;
    int status;

    close(open_monitor(fresh(MIB), MIB)); /* can it be had? */
    pid = fork();
    need(pid >= 0, "fork");
    if (pid == 0) {
        char *p = fresh(MIB);
        int fd = open_monitor(p, MIB);
        pthread_t thread;

        pthread_create(&thread, NULL, reads, &fd);
        pthread_mutex_lock(&m);
        munmap(p, MIB);
        pthread_mutex_unlock(&m);
        pthread_join(thread, NULL);
        _exit(0);
    }
    status = wait_for(pid, 2);
    must(status != -1, "B1: no hang");
}

/* Does the kernel tell, as asked for? */
static bool has_backstop(void)
{
    struct lapse_coverage rows[64];
    int n = lapse_coverage(rows, 64);

    for (int i = 0; i < n && i < 64; i++)
        if (rows[i].mechanism == LAPSE_KERNEL)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    (void)argc;
    case_begin(argv);
    if (expect_fault) {
        show_fault();
        return api_end();
    }
    if (SANITIZED) {
        printf("skipped: free is not libc's here\n");
        return 77;
    }
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    sub = subscribe(LAPSE_CALLBACK, 0, on_event, NULL);
    test_release("free", by_free);
    if (has_backstop())
        test_release("inline munmap", by_inline);
    else
        printf("skipped: inline munmap: no path is covered by the kernel\n");
    check(lapse_unsubscribe(sub) == 0, "unsubscribed");
    return api_end();
}
