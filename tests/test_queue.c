/* SPDX-License-Identifier: BSD-3-Clause */
#include "shim/queue.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>

#include "shim/inflight.h"

#define GENERATION 7u

static struct queue queue;
static struct pool pool;

static void start(void)
{
    pool_open(&pool, 64);
    queue.word = queue_idle(GENERATION);
}

static struct record *push(uint64_t seq)
{
    struct record *r = pool_take(&pool);

    r->seq = seq;
    r->slot = 0;
    r->turn = UINT64_MAX; /* long over */
    cr_assert(queue_push(&queue, GENERATION, &pool, r));
    return r;
}

static unsigned free_records(void)
{
    unsigned n = 0;

    while (pool_take(&pool))
        n++;
    return n;
}

Test(queue, hands_over_newest_first, .init = start)
{
    uint32_t index;

    for (uint64_t i = 1; i <= 5; i++)
        push(i);
    index = (uint32_t)(queue_take(&queue, 0, 0) & QUEUE_INDEX);
    for (uint64_t i = 5; i; i--) {
        cr_assert(index, "only %lu are left", i);
        cr_assert_eq(pool_at(&pool, index)->seq, i);
        index = pool_at(&pool, index)->next;
    }
    cr_assert_eq(index, 0);
    cr_assert_eq(queue.word, queue_idle(GENERATION));
    cr_assert_eq(queue_take(&queue, 0, 0), queue_idle(GENERATION));
}

Test(queue, refuses_another_generation, .init = start)
{
    struct record *r = pool_take(&pool);

    cr_assert(!queue_push(&queue, GENERATION - 1, &pool, r));
    cr_assert(!queue_push(&queue, GENERATION + 1, &pool, r));
    cr_assert_eq(queue.word, queue_idle(GENERATION));
    pool_give(&pool, r); /* still ours */
    cr_assert_eq(free_records(), 64);
}

Test(queue, flags_and_records_leave_each_other_alone, .init = start)
{
    uint64_t word;

    queue_mark(&queue, QUEUE_HELD | QUEUE_OVERFLOW, 0);
    push(1);
    cr_assert_eq(queue.word & ~QUEUE_INDEX,
                 queue_idle(GENERATION) | QUEUE_HELD | QUEUE_OVERFLOW);
    queue_mark(&queue, 0, QUEUE_HELD);
    cr_assert_neq(queue.word & QUEUE_INDEX, 0);
    word = queue_take(&queue, QUEUE_HELD, QUEUE_OVERFLOW);
    cr_assert_neq(word & QUEUE_INDEX, 0);
    cr_assert_eq(word & (QUEUE_HELD | QUEUE_OVERFLOW), QUEUE_OVERFLOW);
    cr_assert_eq(queue.word, queue_idle(GENERATION) | QUEUE_HELD);
}

Test(queue, collapse_keeps_open_records, .init = start)
{
    struct in_flight *f =
        in_flight_claim(range_pack(4096, 8192), lapse_hint.slot);
    struct record *open;
    uint64_t word;

    push(1);
    open = push(2);
    open->slot = (uint32_t)(f - lapse_in_flight.slot);
    open->turn = f->turn;
    push(3);
    queue_collapse(&queue, &pool);
    word = queue_take(&queue, 0, QUEUE_OVERFLOW);
    cr_assert(word & QUEUE_OVERFLOW);
    cr_assert_eq(word >> 32, GENERATION);
    cr_assert_eq(pool_at(&pool, word & QUEUE_INDEX), open);
    cr_assert_eq(open->next, 0, "only the open one is left");
    cr_assert_eq(free_records(), 63, "the others went back");
    in_flight_release(f);
}

Test(queue, collapse_of_nothing_is_overflow, .init = start)
{
    queue_collapse(&queue, &pool);
    cr_assert_eq(queue.word, queue_idle(GENERATION) | QUEUE_OVERFLOW);
}

#define PUSHERS 4
#define EACH 10000

static _Atomic int pushing;

/* seq by relaxed atomics: the queue orders them, but the objects that hooks
 * run through are not instrumented, so a race detector cannot know. */
static void *push_many(void *arg)
{
    uint64_t who = (uintptr_t)arg;

    for (uint64_t i = 1; i <= EACH; i++) {
        struct record *r;

        while (!(r = pool_take(&pool)))
            sched_yield();
        __atomic_store_n(&r->seq, who << 32 | i, __ATOMIC_RELAXED);
        if (!queue_push(&queue, GENERATION, &pool, r))
            abort();
    }
    pushing--;
    return NULL;
}

/* Of one take: newest first, so each pusher's numbers go down by one. */
static void collect(uint32_t index, uint32_t last[PUSHERS])
{
    uint32_t below[PUSHERS] = {0}, newest[PUSHERS] = {0};

    while (index) {
        struct record *r = pool_at(&pool, index);
        uint64_t seq = __atomic_load_n(&r->seq, __ATOMIC_RELAXED);
        unsigned who = (unsigned)(seq >> 32);

        index = r->next;
        if (below[who])
            cr_assert_eq((uint32_t)seq, below[who] - 1);
        else
            newest[who] = (uint32_t)seq;
        below[who] = (uint32_t)seq;
        pool_give(&pool, r);
    }
    for (unsigned i = 0; i < PUSHERS; i++) {
        if (!newest[i])
            continue;
        cr_assert_eq(below[i], last[i] + 1, "lost before %u", below[i]);
        last[i] = newest[i];
    }
}

Test(queue, loses_nothing, .init = start)
{
    pthread_t t[PUSHERS];
    uint32_t last[PUSHERS] = {0};
    int more;

    pushing = PUSHERS;
    for (uintptr_t i = 0; i < PUSHERS; i++)
        pthread_create(&t[i], NULL, push_many, (void *)i);
    do {
        uint32_t index;

        more = pushing;
        index = (uint32_t)(queue_take(&queue, 0, 0) & QUEUE_INDEX);
        if (!index)
            sched_yield();
        collect(index, last);
    } while (more);
    for (int i = 0; i < PUSHERS; i++) {
        pthread_join(t[i], NULL);
        cr_assert_eq(last[i], EACH);
    }
    cr_assert_eq(free_records(), 64);
}
