/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * J4: a signal handler releases watched memory, and publishes, every 100 us,
 * on a signal stack of the least size and 2 KiB for itself, while the main
 * program does the same. No hang; each release is told closed exactly once,
 * and as one release (one sequence number); the hook takes less than 1 KiB of
 * stack. With --expect-fault a handler inside the release takes a lock.
 * Usage: case_j4 [--expect-fault] [BATCHES]
 */
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "case.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif
#define SLOTS 512
#define STRIDE (2 * PAGE)
#define BATCH 64
#define SPARE 2048     /* for the handler and the hook */
#define STACK_MAX 1024 /* of a hook */
#define OWN_FRAME 256  /* what the handler itself may take */
#define PAINT 0x7e

/* How slot i is released; PUBLISH says so of memory that stays. */
enum how { MUNMAP, MADVISE, PUBLISH, REPLACE, WAYS };

static char *base;
static atomic_uint next_slot;
static atomic_ulong by_handler, by_main, wrong;
static struct told {
    uint64_t seq;
    unsigned distinct, times, closed;
} told[SLOTS];
static bool overflow;

/* The handler's stack, and where on it the release functions are called. */
static char *bottom;
static atomic_uintptr_t frame;

static char *slot_page(unsigned i)
{
    return base + i * STRIDE;
}

/* Async-signal-safe: system calls and lapse_publish only. */
static bool release_next(void)
{
    unsigned i = atomic_fetch_add(&next_slot, 1);
    int saved = errno, err;
    char *p;

    if (i >= SLOTS)
        return false;
    p = slot_page(i);
    errno = 4711;
    switch (i % WAYS) {
    case MUNMAP:
        err = munmap(p, PAGE);
        break;
    case MADVISE:
        err = madvise(p, PAGE, MADV_DONTNEED) || p[0] != 0;
        break;
    case PUBLISH:
        err = lapse_publish(p, PAGE);
        break;
    default:
        err = mmap(p, PAGE, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0) != p ||
              p[0] != 0;
    }
    if (err || errno != 4711)
        atomic_fetch_add(&wrong, 1);
    errno = saved;
    return true;
}

/* Once: armed again at the handler's end, or a slow machine would run nothing
 * but handlers. */
static void arm(long us)
{
    struct itimerval once = {{0, 0}, {0, us}};

    setitimer(ITIMER_REAL, &once, NULL);
}

static void on_alarm(int number)
{
    int saved = errno;

    (void)number;
    atomic_store(&frame, (uintptr_t)__builtin_frame_address(0));
    if (release_next()) {
        atomic_fetch_add(&by_handler, 1);
        arm(100);
    }
    errno = saved;
}

static void note(const struct lapse_event *e)
{
    if (e->flags & LAPSE_EVENT_OVERFLOW) {
        overflow = true;
        return;
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        struct told *t = &told[i];

        if (!event_overlaps(e, slot_page(i), PAGE))
            continue;
        t->distinct += t->times == 0 || t->seq != e->seq;
        t->seq = e->seq;
        t->times++;
        t->closed += !(e->flags & LAPSE_EVENT_OPEN);
    }
}

static void poll_all(lapse_handle s)
{
    struct lapse_event ev[BATCH];
    int n;

    do {
        n = lapse_poll(s, ev, BATCH);
        for (int i = 0; i < n; i++)
            note(&ev[i]);
    } while (n == BATCH || (n > 0 && lapse_pending(s)));
}

static void prepare(lapse_handle s)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        char *p = mmap(slot_page(i), PAGE, PROT_READ | PROT_WRITE,
                       MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        need(p == slot_page(i), "mmap");
        p[0] = 1;
    }
    poll_all(s);
    memset(told, 0, sizeof told);
    overflow = false;
    atomic_store(&next_slot, 0);
}

static void signal_stack(void)
{
    size_t least = getauxval(AT_MINSIGSTKSZ);
    struct sigaction act = {.sa_handler = on_alarm,
                            .sa_flags = SA_ONSTACK | SA_RESTART};
    char *area;

    if (SANITIZED)
        least += 65536; /* what the sanitizer's own wrappers take */
    least = (least < 2048 ? 2048 : least) + SPARE;
    area = fresh(PAGE + least);
    bottom = area + PAGE;
    memset(bottom, PAINT, least);
    need(mprotect(area, PAGE, PROT_NONE) == 0, "mprotect");
    need(sigaltstack(&(stack_t){.ss_sp = bottom, .ss_size = least}, NULL) == 0,
         "sigaltstack");
    need(sigaction(SIGALRM, &act, NULL) == 0, "sigaction");
}

/* From the handler's frame down to the lowest byte that was written. */
static size_t stack_used(void)
{
    size_t untouched = 0;

    while (bottom[untouched] == PAINT)
        untouched++;
    return atomic_load(&frame) - (uintptr_t)(bottom + untouched);
}

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

static void on_event(const struct lapse_event *e, void *arg)
{
    (void)e;
    (void)arg;
    pthread_mutex_lock(&m);
    for (int i = 0; i < 1000; i++)
        KEEP(arg);
    pthread_mutex_unlock(&m);
}

/* ld.so needs more stack than the handler has. */
static void bind_functions(void)
{
    while (release_next())
        ;
}

static char state_of(pid_t pid)
{
    char path[64], state = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "r");
    need(f && fscanf(f, "%*d %*s %c", &state) == 1, path);
    fclose(f);
    return state;
}

/* What interrupts the holder of the lock waits for it, for ever. */
static void show_fault(void)
{
    pid_t pid = fork();
    bool asleep = true;

    need(pid >= 0, "fork");
    if (pid == 0) {
        lapse_handle s;

        bind_functions();
        s = subscribe(LAPSE_INLINE, 0, on_event, NULL);

        need(lapse_watch(s, base, SLOTS * STRIDE) == 0, "watch");
        signal_stack();
        for (;;) {
            atomic_store(&next_slot, 0);
            arm(100);
            while (atomic_load(&next_slot) < SLOTS)
                lapse_publish(base, PAGE);
        }
    }
    sleep_us(1000000);
    for (int i = 0; i < 20 && asleep; i++) {
        asleep = state_of(pid) == 'S';
        sleep_us(10000);
    }
    must(!asleep, "J4: no hang");
    need(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid, "kill");
}

static struct {
    unsigned long lost, parted, doubled, times, overflows;
} sum;

static void add_up(void)
{
    sum.overflows += overflow;
    for (unsigned i = 0; i < SLOTS; i++) {
        sum.lost += told[i].closed == 0 && !overflow;
        sum.doubled += told[i].closed > 1;
        sum.parted += told[i].distinct > 1;
        sum.times += told[i].times;
    }
}

static void run_batch(lapse_handle s, int number)
{
    prepare(s);
    arm(100);
    while (atomic_load(&next_slot) < SLOTS) {
        if (number % 4 == 0 && release_next())
            atomic_fetch_add(&by_main, 1);
        if (number % 4 == 1)
            poll_all(s);       /* interrupted while it holds its own lock */
        if (number % 4 == 2) { /* while a release of ours is under way */
            char *p = fresh(PAGE);

            munmap(p, PAGE);
        }
    }
    arm(0);
    poll_all(s);
    add_up();
}

static void test_releases(int batches)
{
    lapse_handle s = subscribe(LAPSE_POLL, 0, NULL, NULL);
    uint64_t end = now_ns() + 100000000000u;
    int done;

    need(lapse_watch(s, base, SLOTS * STRIDE) == 0, "watch");
    prepare(s);
    bind_functions();
    signal_stack();
    for (done = 0; done < batches && now_ns() < end; done++)
        run_batch(s, done);
    printf("batches %d: released by main %lu, by the handler %lu, told %lu, "
           "overflows %lu\n",
           done, atomic_load(&by_main), atomic_load(&by_handler), sum.times,
           sum.overflows);
    check(done == batches, "J4: %d batches in 100 s", batches);
    check(atomic_load(&by_handler) > 100, "J4: the handler released");
    check(atomic_load(&wrong) == 0, "J4: results and errno of the releases");
    check(sum.lost == 0, "J4: releases not told closed: %lu", sum.lost);
    check(sum.parted == 0, "J4: releases told as more than one: %lu",
          sum.parted);
    check(sum.doubled == 0, "J4: releases told closed twice: %lu", sum.doubled);
    check(sum.overflows < (unsigned long)batches / 2 + 1,
          "J4: overflow is the rare");
    if (!SANITIZED)
        check(stack_used() < STACK_MAX + OWN_FRAME,
              "J4: %zu bytes of stack, of the handler and the hook",
              stack_used());
}

int main(int argc, char **argv)
{
    (void)argc;
    argv = case_begin(argv);
    alarm(0); /* it is the signal under test; check.sh has a limit */
    base = fresh(SLOTS * STRIDE);
    if (expect_fault)
        show_fault();
    else
        test_releases(argv[1] ? atoi(argv[1]) : 100);
    return api_end();
}
