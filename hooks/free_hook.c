/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * free and its like, told by the byte.
 *
 * Here we look whether anybody watches before we claim a slot, and claim it
 * with no range, other than the hooks of system calls (I2 in inflight.h). A
 * watch that is made while a free runs is not told of that free, and need not
 * be: G1 speaks of ranges that were watched before the release began, and what
 * lapse_watch() wrote is in place when it returns, for every later load of any
 * thread. Nor can a registration go stale by what is missed. Watching a block
 * while another thread frees it is an error of the program's own; and who
 * watches a neighbour in the same page keeps a page that stays what it is, as
 * free() gives no page back but by a system call, which has a hook of its own
 * that claims first.
 *
 * realloc is told before it is done, when nobody knows yet whether it moves:
 * the whole old block, open. If it stayed in place, the record is voided: who
 * polls while it runs hears a false alarm, who polls later hears nothing. What
 * it cut off at the end is told before the first record ends, so that there
 * is no moment in which neither is pending.
 *
 * An allocator may come by again with the same block, from one patched
 * function into another (glibc's realloc to 0 bytes calls free); whoever was
 * first tells. A slot says which block its holder is about.
 */
#include "hooks/free_hook.h"

#include "hooks/caller.h"
#include "shim/release.h"
#include "shim/trace_release.h"

#define CHUNK_FLAGS ((size_t)7)
#define CHUNK_MMAPPED ((size_t)2)

typedef void *free_real(void *p, uintptr_t a, uintptr_t b, uintptr_t c);

struct block {
    uintptr_t start, end;
};

/*
 * glibc: the word before the block is its chunk's length, header included. A
 * mapped chunk has two words of header; another one has one, and lends the
 * first word of the next chunk.
 */
static size_t chunk_usable(const void *p)
{
    size_t word = ((const size_t *)p)[-1];
    size_t size = word & ~CHUNK_FLAGS;
    size_t header = (word & CHUNK_MMAPPED ? 2 : 1) * sizeof(size_t);

    return size > header ? size - header : 0;
}

static size_t usable(const struct free_function *f, void *p)
{
    return f->usable ? f->usable(p, NULL) : chunk_usable(p);
}

/* False: not this allocator's, or broken; the real function will say so. */
static bool block_of(const struct free_function *f, void *p, struct block *b)
{
    size_t size = usable(f, p);

    b->start = (uintptr_t)p;
    b->end = b->start + size;
    return size && b->start < USER_END && size < USER_END - b->start;
}

static void count(struct release *r, const struct block *b,
                  const uintptr_t *stack)
{
    enum inside inside;
    uintptr_t pc;

    if (!lapse_observing)
        return;
    inside = caller_inside(stack, LAPSE_PATH_FREE, &pc);
    release_count(r, LAPSE_PATH_FREE, b->end - b->start, 1, inside);
    if (observing(OBSERVE_TRACE))
        trace_release(r, b->start, b->end, LAPSE_PATH_FREE, inside, pc);
}

/* Is this thread inside a hook that tells of this block? */
static bool is_told(uintptr_t start)
{
    uintptr_t self = (uintptr_t)__builtin_thread_pointer();
    uint32_t n = lapse_hint.depth ? in_flight_high() : 0;

    /* relaxed: what matters was stored by this thread */
    for (uint32_t i = 0; i < n; i++)
        if (atomic_load_explicit(&lapse_in_flight.slot[i].block,
                                 memory_order_relaxed) == start &&
            atomic_load_explicit(&lapse_in_flight.slot[i].owner,
                                 memory_order_relaxed) == self)
            return true;
    return false;
}

static void begin(struct release *r, const struct block *b)
{
    release_announce(r, RANGE_NOTHING, LAPSE_REASON_FREE);
    if (r->slot)
        atomic_store_explicit(&r->slot->block, b->start, memory_order_relaxed);
    if (release_free_wanted(b->start, b->end))
        release_publish(r, b->start, b->end, LAPSE_REASON_FREE);
    release_test_delay(0);
}

static void end(struct release *r)
{
    if (r->slot)
        atomic_store_explicit(&r->slot->block, 0, memory_order_relaxed);
    release_end(r);
}

/* It stayed where it was: all there is to tell is what it lost. */
static void tell_tail(struct block tail, const uintptr_t *stack)
{
    struct release r;

    begin(&r, &tail);
    count(&r, &tail, stack);
    end(&r);
}

static bool has_moved(const struct free_function *f, const void *p,
                      const void *now, uintptr_t size)
{
    if (f->kind != FREE_RESIZE)
        return f->kind == FREE_BLOCK;
    return now ? now != p : !size; /* NULL: freed, or there is no memory */
}

/* Has it anything to say, whatever becomes of the block? */
static bool is_asked(const struct free_function *f, uintptr_t size,
                     const struct block *b)
{
    if (f->kind == FREE_IN_PLACE && size >= b->end - b->start)
        return false;
    return (lapse_observing || release_free_wanted(b->start, b->end)) &&
           !is_told(b->start);
}

/* Apart, so that free_hook() has no frame when there is nothing to tell. */
__attribute__((noinline)) static void *tell(struct block old, uintptr_t a,
                                            uintptr_t b, uintptr_t c,
                                            const struct free_function *f,
                                            const uintptr_t *stack)
{
    void *p = (void *)old.start;
    free_real *real = (free_real *)f->real;
    struct release r;
    void *ret;

    if (!is_asked(f, a, &old))
        return real(p, a, b, c);
    begin(&r, &old);
    ret = real(p, a, b, c);
    if (has_moved(f, p, ret, a)) {
        count(&r, &old, stack);
    } else {
        size_t left = usable(f, p);

        if (left < old.end - old.start)
            tell_tail((struct block){old.start + left, old.end}, stack);
        release_void(&r);
    }
    end(&r);
    return ret;
}

void *free_hook(void *p, uintptr_t a, uintptr_t b, uintptr_t c,
                const struct free_function *f, const uintptr_t *stack)
{
    struct block old;

    if (!block_of(f, p, &old) || !release_free_near(old.start, old.end))
        return ((free_real *)f->real)(p, a, b, c);
    return tell(old, a, b, c, f, stack);
}
