/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preloaded beside liblapse by scripts/zoo: a cache in every process of a
 * program that knows of none. It is told of every release; its callback does
 * all that a handler inside a release must not do: it takes a lock, and
 * allocates and frees under it. A thread of its own does so at the same time,
 * in this process and in each that is forked from it.
 * ZOO_TOLD=FILE: a file of struct told, where all processes count.
 * ZOO_CHILDREN=no: forked processes go without, until they execute a program.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../shim/lapse.h"

static struct told {
    unsigned long processes; /* that subscribed; a forked one counts, too */
    unsigned long events;
    unsigned long overflows;
    unsigned long rounds; /* of the thread */
    unsigned long refused; /* calls of the library that returned an error */
} nowhere, *told = &nowhere;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *kept[16]; /* under the lock */
static size_t made;    /* under the lock */
static lapse_handle handle;
static bool children = true;

static void count(unsigned long *what)
{
    __atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

/* A block in, the one of sixteen turns ago out: of all sizes up to one that
   has a mapping of its own. */
static void change(void)
{
    size_t size;
    char *block;

    pthread_mutex_lock(&lock);
    size = made % 64 ? 100 + made % 8 * 4000 : 300000;
    block = malloc(size);
    if (block)
        memset(block, 1, size);
    free(kept[made % 16]);
    kept[made++ % 16] = block;
    pthread_mutex_unlock(&lock);
}

static void gone(const struct lapse_event *event, void *arg)
{
    (void)arg;
    count(&told->events);
    if (event->flags & LAPSE_EVENT_OVERFLOW)
        count(&told->overflows);
    change();
}

/* In a forked child the library calls back from the first call on. */
static void *run(void *arg)
{
    struct timespec nap = {.tv_nsec = 2000000};

    (void)arg;
    if (lapse_sync(handle) != 0)
        count(&told->refused);
    for (;;) {
        change();
        count(&told->rounds);
        nanosleep(&nap, NULL);
    }
    return NULL;
}

static void thread_begin(void)
{
    static const struct lapse_thread thread = {.start = run};

    count(&told->processes);
    lapse_thread_start(&thread, NULL);
}

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    pthread_mutex_unlock(&lock);
    if (children)
        thread_begin();
}

static void told_open(const char *file)
{
    int fd = file ? open(file, O_RDWR | O_CLOEXEC) : -1;
    void *there;

    if (fd < 0)
        return;
    there = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (there != MAP_FAILED)
        told = there;
}

__attribute__((constructor)) static void begin(void)
{
    struct lapse_subscription how = {.size = sizeof how,
                                     .delivery = LAPSE_CALLBACK,
                                     .flags = LAPSE_ALL | LAPSE_FORK_KEEP,
                                     .callback = gone};

    told_open(getenv("ZOO_TOLD"));
    children = !getenv("ZOO_CHILDREN");
    if (lapse_subscribe(&how, &handle) != 0) {
        count(&told->refused);
        return;
    }
    pthread_atfork(before_fork, after_fork, in_child);
    thread_begin();
}
