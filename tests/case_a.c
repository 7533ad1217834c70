/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Nobody's lock is held (G3): cases A1 and A2. The program has a malloc of its
 * own that notes who is inside it and can release a page there. The callback
 * takes the lock that everybody holds while allocating: called from inside a
 * release it hangs, which --expect-fault shows with an INLINE handler.
 * Usage: case_a [--expect-fault] a1|a2 [SECONDS], with MALLOC_ARENA_MAX=1
 */
#include <malloc.h>
#include <pthread.h>

#include "case.h"

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
static atomic_ulong calls, of_page, releases_of_page;
static _Atomic uint64_t last_seq;
static atomic_bool stop, inside;
static __thread bool in_handler;

/*
 * S-heavy of the cases: everything that is deadly under a foreign lock. What
 * it releases itself an INLINE handler hears of at once: that is not counted,
 * or the control would only show that a lock is not recursive.
 */
static void on_event(const struct lapse_event *e, void *arg)
{
    char text[64], *p, *q;

    (void)arg;
    if (in_handler)
        return;
    in_handler = true;
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
    if (event_overlaps(e, page, PAGE)) {
        if (atomic_exchange(&last_seq, e->seq) != e->seq)
            atomic_fetch_add(&releases_of_page, 1);
        atomic_fetch_add(&of_page, 1);
    }
    atomic_fetch_add(&calls, 1);
    in_handler = false;
}

static uint32_t delivery(void)
{
    return expect_fault ? LAPSE_INLINE : LAPSE_CALLBACK;
}

/* The hang itself is what the control shows. */
static void on_alarm(int number)
{
    static const char text[] = "ok     hung, as it must\n";

    (void)number;
    _exit(write(1, text, sizeof text - 1) < 0);
}

static void wait_calls(atomic_ulong *counter, unsigned long target)
{
    for (int i = 0; i < 5000 && atomic_load(counter) < target; i++)
        sleep_us(1000);
}

#define ALLOCATIONS 100

/* A2: the release happens inside malloc, by the thread that holds the lock. */
static void test_own_malloc(void)
{
    lapse_handle s = subscribe(delivery(), 0, on_event, NULL);
    char *p;

    need(lapse_watch(s, page, PAGE) == 0, "watch");
    page[0] = 1;
    pthread_mutex_lock(&m);
    atomic_store(&purging, true);
    for (int i = 0; i < ALLOCATIONS; i++) {
        p = malloc(100);
        KEEP(p);
        if (i < ALLOCATIONS - 1) {
            atomic_store(&purging, false);
            free(p);
            atomic_store(&purging, true);
        }
    }
    atomic_store(&purging, false);
    check(atomic_load(&purges) == ALLOCATIONS && page[0] == 0,
          "A2: malloc released %d times, no hang", ALLOCATIONS);
    check(atomic_load(&of_page) == 0, "A2: nothing ran while the lock is held");
    pthread_mutex_unlock(&m);
    free(p);
    wait_calls(&of_page, 1);
    check(atomic_load(&of_page) > 0, "A2: the callback came later");
    check(lapse_sync(s) == 0, "A2: sync");
    check(atomic_load(&releases_of_page) <= atomic_load(&purges),
          "A2: told of %lu releases of %lu", atomic_load(&releases_of_page),
          atomic_load(&purges));
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
    pthread_t thread[2];
    void *p;

    /* Two first calls at once glibc does not stand; under ASan nobody before
     * these threads calls its malloc. */
    p = malloc(1);
    KEEP(p);
    free(p);
    s = subscribe(delivery(), LAPSE_ALL, on_event, NULL);
    pthread_create(&thread[0], NULL, holds_lock, NULL);
    pthread_create(&thread[1], NULL, trims, NULL);
    sleep_us((long)(length * 1e6));
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    check(true, "A1: no hang");
    check(atomic_load(&calls) > 0, "A1: callbacks: %lu", atomic_load(&calls));
    check(!atomic_load(&inside), "A1: never inside the allocator");
    check(lapse_unsubscribe(s) == 0, "A1: unsubscribed");
}

int main(int argc, char **argv)
{
    double length;

    (void)argc;
    argv = case_begin(argv);
    need(argv[1] != NULL, "a1 or a2");
    length = argv[2] ? atof(argv[2]) : 3;
    alarm(HANG + (unsigned)length);
    if (expect_fault) {
        signal(SIGALRM, on_alarm);
        alarm(2);
    }
    if (!strcmp(argv[1], "a2"))
        test_own_malloc();
    else
        test_arena_lock(length);
    must(true, "it does not hang");
    return api_end();
}
#endif
