/* SPDX-License-Identifier: BSD-3-Clause */
/* What a phase of scripts/torture must have done, and what it has. */
#include <stdarg.h>

#include "torture_phase.h"

static bool demand(bool held, const char *format, ...)
{
    va_list ap;

    if (held)
        return true;
    va_start(ap, format);
    printf("  FAILED: ");
    vprintf(format, ap);
    putchar('\n');
    va_end(ap);
    return false;
}

static unsigned long total(const struct torture_board *board, size_t field)
{
    unsigned long sum = 0;

    for (unsigned i = 0; i < board->threads; i++)
        sum += torture_get((const void *)((const char *)&board->thread[i] +
                                          field));
    return sum;
}
#define TOTAL(board, field) \
    total(board, offsetof(struct torture_thread, field))

static void print_told(const struct torture_board *b)
{
    printf("  told:");
    for (unsigned i = 0; i < TORTURE_REASONS; i++)
        if (torture_get(&b->told[i]))
            printf(" %s %lu", lapse_reason_name(i), torture_get(&b->told[i]));
    printf("; of these open %lu, closed %lu\n", torture_get(&b->told_open),
           torture_get(&b->told_closed));
}

static void print_counters(enum torture_mode mode,
                           const struct torture_board *b,
                           const struct phase_result *r)
{
    printf("  ran %.1f s; mallocs under the cache lock %lu, releasing rounds "
           "%lu\n", r->ran, TOTAL(b, mallocs), TOTAL(b, releases));
    print_told(b);
    if (mode == TORTURE_SYNC)
        return;
    printf("  handler on a thread in the allocator %lu, in another release "
           "%lu,\n    on a test thread outside lapse_sync %lu, in itself "
           "%lu\n", torture_get(&b->in_allocator),
           torture_get(&b->in_release), torture_get(&b->on_worker),
           torture_get(&b->nested));
    printf("  witness pages released %lu, nobody told of %lu; overflows "
           "told %lu\n", torture_get(&b->witnesses), b->lost,
           torture_get(&b->told[LAPSE_REASON_OVERFLOW]));
    printf("  lapse_watch under the cache lock %lu, lapse_sync %lu, calls "
           "refused %lu\n", torture_get(&b->watches), torture_get(&b->syncs),
           torture_get(&b->refused));
    printf("  library: published %lu, filtered %lu, delivered %lu, "
           "overflowed %lu,\n    pool %lu of %lu, in flight at most %lu\n",
           b->stats.published, b->stats.filtered, b->stats.delivered,
           b->stats.overflowed, b->stats.pool_high, b->stats.pool_size,
           b->stats.in_flight_high);
    printf("  longest standstill of a thread, or of telling: %.2f s\n",
           r->longest_still);
}

static const char *role(const struct torture_thread *t)
{
    return t->holder ? "holder" : "releaser";
}

static bool in_allocator(const struct torture_thread *t)
{
    return torture_int(&t->place) == PLACE_ALLOCATOR;
}

/* The two threads of the deadlock; one and the same when it hangs on itself. */
struct culprits {
    const struct torture_thread *waiter; /* in the handler, wants the lock */
    const struct torture_thread *holder; /* owns that lock */
};

static struct culprits culprits_find(const struct torture_board *b)
{
    int owner = torture_int(&b->owner);
    struct culprits c = {NULL, NULL};

    for (unsigned i = 0; i < b->threads; i++) {
        const struct torture_thread *t = &b->thread[i];
        if (torture_int(&t->tid) == owner)
            c.holder = t;
        /* Many may wait; the one inside the allocator holds its lock. */
        if (torture_int(&t->waiting) && (!c.waiter || !in_allocator(c.waiter)))
            c.waiter = t;
    }
    if (c.holder && torture_int(&c.holder->waiting))
        c.waiter = c.holder;
    return c;
}

static bool culprits_print(struct culprits c, pid_t pid)
{
    struct stack_request request[2];

    /* Any other standstill is not the one that was to be shown. */
    if (!c.waiter || !c.holder || !in_allocator(c.waiter) ||
        !in_allocator(c.holder)) {
        stacks_print(pid, NULL, 0);
        return demand(false, "hung, but not on the cache's and the "
                      "allocator's lock");
    }
    request[0].tid = torture_int(&c.waiter->tid);
    request[1].tid = torture_int(&c.holder->tid);
    snprintf(request[0].title, sizeof(request[0].title),
             "%s, thread %d, in malloc or free: its handler wants the cache "
             "lock%s", role(c.waiter), request[0].tid,
             c.waiter == c.holder ? ", which\n     it holds itself" : "");
    snprintf(request[1].title, sizeof(request[1].title),
             "%s, thread %d, holds the cache lock: it wants the allocator's",
             role(c.holder), request[1].tid);
    stacks_print(pid, request, c.waiter == c.holder ? 1 : 2);
    return true;
}

static bool judge_sync(const struct torture_options *options,
                       const struct torture_board *b, pid_t pid,
                       const struct phase_result *r)
{
    if (r->end == PHASE_HUNG) {
        printf("  HUNG, as it must: after %.2f s; %u of %u threads stand "
               "still\n", r->worked, r->still, b->threads);
        if (options->jemalloc)
            printf("  (jemalloc 5 holds no lock while it purges: a thread "
                   "hangs on itself, then all\n  who want the cache lock; "
                   "others run on, and nothing is purged any more)\n");
        return culprits_print(culprits_find(b), pid);
    }
    if (r->end == PHASE_NO_HANG && TORTURE_OWN_MALLOC) {
        printf("  no hang: the sanitizer's allocator is in use; for "
               "information only\n");
        return true;
    }
    return demand(r->end != PHASE_NO_HANG,
                  "no hang. The fault was not provoked, so that this run "
                  "says\n    nothing about the cure: either releases were "
                  "not seen (told 0?), or\n    this allocator does not "
                  "release under its lock, or INLINE is not inline.");
}

static bool judge_end(const struct torture_board *b, pid_t pid,
                      const struct phase_result *r)
{
    bool there = r->end != PHASE_ENDED;

    if (r->end == PHASE_HUNG)
        demand(false, "HUNG: some thread, or the telling, stood still for "
               "%.1f s", r->longest_still);
    if (r->end == PHASE_NOT_STARTED)
        demand(false, "the child's threads did not start");
    if (r->end == PHASE_NOT_STOPPED)
        demand(false, "the threads did not end when told to");
    if (there) /* any thread may be to blame, the library's own too */
        stacks_print(pid, NULL, 0);
    if (!r->death[0] && !there && torture_int(&b->finished))
        return true;
    if (!there)
        demand(false, "the child ended early: %s%s%s",
               r->death[0] ? r->death : "exit status 0",
               b->error[0] ? ": " : "", b->error);
    return false;
}

bool phase_judge(const struct torture_options *options,
                 enum torture_mode mode, const struct torture_board *b,
                 pid_t pid, const struct phase_result *r)
{
    bool ok = true;

    print_counters(mode, b, r);
    if (mode == TORTURE_SYNC &&
        (r->end == PHASE_HUNG || r->end == PHASE_NO_HANG))
        return judge_sync(options, b, pid, r);
    if (!judge_end(b, pid, r))
        return false;
    uint64_t closed = torture_get(&b->told_closed);
    uint64_t refused = torture_get(&b->refused);
    ok &= demand(closed, "nothing was told");
    ok &= demand(!torture_get(&b->in_allocator) &&
                 !torture_get(&b->in_release),
                 "the handler ran inside a release");
    ok &= demand(!torture_get(&b->on_worker),
                 "the handler ran on a test thread");
    ok &= demand(!torture_get(&b->nested), "the handler ran inside itself");
    ok &= demand(!b->lost, "%lu releases were forgotten", b->lost);
    ok &= demand(!refused, "%lu calls refused, first %s", refused, b->error);
    ok &= demand(!b->never_quiet, "still pending with no release under way");
    ok &= demand(b->stats.overflowed || closed >= b->stats.published,
                 "%lu records published, only %lu told as closed",
                 b->stats.published, closed);
    return ok;
}
