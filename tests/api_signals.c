/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * J4: a signal handler releases watched memory, and publishes, every 100 us,
 * on a small signal stack, while the main program does the same. No hang; each
 * release is told, and as one release (one sequence number).
 * Usage: api_signals [BATCHES]
 */
#include <sched.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "api.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif
#define SLOTS 512
#define STRIDE (2 * PAGE)
#define BATCH 64

/* How slot i is released; PUBLISH says so of memory that stays. */
enum how { MUNMAP, MADVISE, PUBLISH, REPLACE, WAYS };

static char *base;
static atomic_uint next_slot;
static atomic_ulong by_handler, by_main, wrong;
static struct told {
    uint64_t seq;
    unsigned distinct, times;
} told[SLOTS];
static bool overflow;

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
        err = mmap(p, PAGE, PROT_READ, MAP_FIXED | MAP_PRIVATE |
                   MAP_ANONYMOUS, -1, 0) != p || p[0] != 0;
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

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    least += 65536; /* what the sanitizer's own wrappers take */
#endif
    least = (least < 2048 ? 2048 : least) + 2048;
    area = fresh(PAGE + least);
    need(mprotect(area, PAGE, PROT_NONE) == 0, "mprotect");
    need(sigaltstack(&(stack_t){.ss_sp = area + PAGE, .ss_size = least},
                     NULL) == 0, "sigaltstack");
    need(sigaction(SIGALRM, &act, NULL) == 0, "sigaction");
}

int main(int argc, char **argv)
{
    int batches = argc > 1 ? atoi(argv[1]) : 100;
    lapse_handle s = subscribe(LAPSE_POLL, 0, NULL, NULL);
    unsigned long lost = 0, more = 0, times = 0, overflows = 0;
    uint64_t end = now_ns() + 100000000000u;
    int done;

    base = fresh(SLOTS * STRIDE);
    need(lapse_watch(s, base, SLOTS * STRIDE) == 0, "watch");
    /* Bind the functions: ld.so needs more stack than the handler has. */
    prepare(s);
    while (release_next())
        ;
    signal_stack();

    for (done = 0; done < batches && now_ns() < end; done++) {
        prepare(s);
        arm(100);
        while (atomic_load(&next_slot) < SLOTS) {
            if (done % 4 == 0 && release_next())
                atomic_fetch_add(&by_main, 1);
            if (done % 4 == 1)
                poll_all(s); /* interrupted while it holds its own lock */
            if (done % 4 == 2) { /* while a release of ours is under way */
                char *p = fresh(PAGE);

                munmap(p, PAGE);
            }
        }
        arm(0);
        poll_all(s);
        overflows += overflow;
        for (unsigned i = 0; i < SLOTS; i++) {
            lost += told[i].times == 0 && !overflow;
            more += told[i].distinct > 1;
            times += told[i].times;
        }
    }
    printf("batches %d: released by main %lu, by the handler %lu, told %lu, "
           "overflows %lu\n", done, atomic_load(&by_main),
           atomic_load(&by_handler), times, overflows);
    check(done == batches, "%d batches in 100 s", batches);
    check(atomic_load(&by_handler) > 100, "the handler released");
    check(atomic_load(&wrong) == 0, "results and errno of the releases");
    check(lost == 0, "releases not told of: %lu", lost);
    check(more == 0, "releases told as more than one: %lu", more);
    check(overflows < (unsigned long)batches / 2 + 1, "overflow is the rare");
    return api_end();
}
