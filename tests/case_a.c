/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Nobody's lock is held (G3): cases A1 and A2. The program has a malloc of its
 * own that notes who is inside it and can release a page there. The callback
 * takes the lock that everybody holds while allocating: called from inside a
 * release it would hang, or meet its own thread inside the allocator.
 * Usage: api_locks [SECONDS]
 */
#include <malloc.h>
#include <pthread.h>

#include "api.h"

#ifdef __SANITIZE_THREAD__
int main(void)
{
    printf("skipped: ThreadSanitizer has a malloc that cannot be replaced\n");
    return 0;
}
#else
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

static char page[PAGE] __attribute__((aligned(4096)));
static atomic_bool purging;
static atomic_ulong purges;
static __thread volatile int in_allocator;

static void *enter(void)
{
    in_allocator++;
    if (atomic_load(&purging)) {
        atomic_fetch_add(&purges, 1);
        madvise(page, PAGE, MADV_DONTNEED);
    }
    return NULL;
}

static void *leave(void *p)
{
    in_allocator--;
    return p;
}

void *malloc(size_t n)
{
    enter();
    return leave(__libc_malloc(n));
}

void *calloc(size_t n, size_t size)
{
    enter();
    return leave(__libc_calloc(n, size));
}

void *realloc(void *p, size_t n)
{
    enter();
    return leave(__libc_realloc(p, n));
}

void free(void *p)
{
    in_allocator++;
    __libc_free(p);
    in_allocator--;
}

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; /* not recursive */
static atomic_ulong calls, of_page;
static atomic_bool stop, inside;

/* S-heavy of the cases: everything that is deadly under a foreign lock. */
static void on_event(const struct lapse_event *e, void *arg)
{
    char text[64], *p, *q;

    (void)arg;
    if (in_allocator)
        atomic_store(&inside, true);
    pthread_mutex_lock(&m);
    p = malloc(2000);
    snprintf(text, sizeof text, "%p %zu", (void *)e->addr, e->len);
    memcpy(p, text, sizeof text);
    KEEP(p);
    free(p);
    q = fresh(PAGE);
    munmap(q, PAGE);
    pthread_mutex_unlock(&m);
    if (event_overlaps(e, page, PAGE))
        atomic_fetch_add(&of_page, 1);
    atomic_fetch_add(&calls, 1);
}

static void wait_calls(atomic_ulong *counter, unsigned long target)
{
    for (int i = 0; i < 5000 && atomic_load(counter) < target; i++)
        sleep_us(1000);
}

/* A2: the release happens inside malloc, by the thread that holds the lock. */
static void test_own_malloc(void)
{
    lapse_handle s = subscribe(LAPSE_CALLBACK, 0, on_event, NULL);
    char *p;

    need(lapse_watch(s, page, PAGE) == 0, "watch");
    page[0] = 1;
    pthread_mutex_lock(&m);
    atomic_store(&purging, true);
    p = malloc(100);
    KEEP(p);
    atomic_store(&purging, false);
    check(atomic_load(&purges) > 0 && page[0] == 0, "A2: malloc released");
    check(atomic_load(&of_page) == 0, "A2: nothing ran while the lock is held");
    pthread_mutex_unlock(&m);
    free(p);
    wait_calls(&of_page, 1);
    check(atomic_load(&of_page) > 0, "A2: the callback came later");
    check(lapse_sync(s) == 0, "A2: sync");
    check(atomic_load(&of_page) <= 2 * atomic_load(&purges),
          "A2: not more often than open and closed");
    check(!atomic_load(&inside), "A2: never inside the allocator");
    check(lapse_unsubscribe(s) == 0, "A2: unsubscribed");
}

static void *holds_lock(void *unused)
{
    while (!atomic_load(&stop)) {
        char *p;

        pthread_mutex_lock(&m);
        p = malloc(100000);
        p[0] = 1;
        KEEP(p);
        free(p);
        pthread_mutex_unlock(&m);
    }
    return unused;
}

static void *trims(void *unused)
{
    uint64_t random = 12345;

    while (!atomic_load(&stop)) {
        size_t n = 65536 + random_next(&random) % (2 << 20);
        char *p = malloc(n);

        p[0] = p[n - 1] = 1;
        KEEP(p);
        free(p);
        malloc_trim(0);
    }
    return unused;
}

static void test_arena_lock(double length)
{
    lapse_handle s;
    pthread_t thread[3];

    mallopt(M_ARENA_MAX, 1);
    atomic_store(&calls, 0);
    s = subscribe(LAPSE_CALLBACK, LAPSE_ALL, on_event, NULL);
    pthread_create(&thread[0], NULL, holds_lock, NULL);
    pthread_create(&thread[1], NULL, trims, NULL);
    pthread_create(&thread[2], NULL, trims, NULL);
    sleep_us((long)(length * 1e6));
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    check(true, "A1: no hang");
    check(atomic_load(&calls) > 0, "A1: callbacks: %lu", atomic_load(&calls));
    check(!atomic_load(&inside), "A1: never inside the allocator");
    check(lapse_unsubscribe(s) == 0, "A1: unsubscribed");
}

int main(int argc, char **argv)
{
    double length = argc > 1 ? atof(argv[1]) : 3;

    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(30 + (unsigned)length); /* a hang is a failure */
    test_own_malloc();
    test_arena_lock(length);
    return api_end();
}
#endif
