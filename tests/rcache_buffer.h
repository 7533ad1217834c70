/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Store buffers, larger and slower than the processor's: what a thread counts
 * (tally_add_plain) stays in a buffer of its own, and no other thread sees it,
 * until it counts something else, makes a fence, or somebody makes the barrier
 * of all threads. So whatever hangs on that barrier goes wrong without it,
 * which on a processor it does once in a very long time.
 *
 * Weaker than x86, where it is not seen until a later locked instruction: the
 * cache must not hang on such a one, and does not.
 */
#ifndef LAPSE_TESTS_RCACHE_BUFFER_H
#define LAPSE_TESTS_RCACHE_BUFFER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define BUFFERS 16 /* threads at once */

/* Called from rcache/, built with LAPSE_TEST_HOOKS. */
void rcache_test_add(_Atomic uint32_t *count, uint32_t n);
void rcache_test_fence(void);
void rcache_test_barrier(void);

static struct buffer {
    pthread_mutex_t lock;
    _Atomic bool taken; /* by a thread */
    _Atomic uint32_t *at;
    uint32_t value;
} buffers[BUFFERS] = {[0 ... BUFFERS - 1] = {PTHREAD_MUTEX_INITIALIZER,
                                             false, NULL, 0}};
static __thread struct buffer *my_buffer;

static struct buffer *buffer_of_mine(void)
{
    for (int i = 0; !my_buffer; i++) {
        if (i == BUFFERS)
            abort();
        if (!atomic_exchange(&buffers[i].taken, true))
            my_buffer = &buffers[i];
    }
    return my_buffer;
}

static void buffer_empty(struct buffer *b)
{
    if (b->at)
        atomic_store(b->at, b->value);
    b->at = NULL;
}

void rcache_test_add(_Atomic uint32_t *count, uint32_t n)
{
    struct buffer *b = buffer_of_mine();

    pthread_mutex_lock(&b->lock);
    if (b->at != count) {
        buffer_empty(b);
        b->value = atomic_load(count);
        b->at = count;
    }
    b->value += n;
    pthread_mutex_unlock(&b->lock);
}

static void buffer_flush(struct buffer *b)
{
    pthread_mutex_lock(&b->lock);
    buffer_empty(b);
    pthread_mutex_unlock(&b->lock);
}

void rcache_test_fence(void)
{
    buffer_flush(buffer_of_mine());
}

void rcache_test_barrier(void)
{
    for (int i = 0; i < BUFFERS; i++)
        buffer_flush(&buffers[i]);
}

/* A thread that ends is seen to have ended. */
static void buffer_leave(void)
{
    rcache_test_fence();
    atomic_store(&my_buffer->taken, false);
    my_buffer = NULL;
}

#endif
