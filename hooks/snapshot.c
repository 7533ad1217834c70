/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much of a stack can be read? What lies between the stack pointer and
 * the base of the thread's own stack is its active frames, which nobody may
 * unmap while it runs: a plain copy cannot fault there. Everything else may
 * end anywhere, and its neighbour may vanish while we look: such a stack is
 * copied by process_vm_readv(), by which the kernel says where it ends.
 *
 * The thread's own stack is known where one mapping holds it alone:
 *  - glibc puts what the thread pointer points to above the stack into the
 *    same mapping, and a guard page below it. So from the guard to the thread
 *    pointer it is one stack. Without a guard directly below (a user's stack,
 *    guard size 0, a guard that the kernel's list does not show) the mapping
 *    might hold other things as well, and nothing is taken to be known.
 *  - that of the process, where the kernel put the name of the program at the
 *    upper end; no other mapping is ever joined to it. It grows, so its lower
 *    end is looked up again when the stack pointer is below what was known.
 *
 * Who else may run on a known stack, or with what is kept for one thread?
 *  - A coroutine, a handler on an alternate stack: the stack pointer tells.
 *    Those that live in a frame of the thread, or in its TLS below the thread
 *    pointer, have memory above them as long as that is there.
 *  - A vfork child runs in its parent's frames while that one waits, with its
 *    thread pointer; that of posix_spawn() on a stack of its own: as above.
 *  - A thread made by clone() without CLONE_SETTLS shares all that is kept
 *    with who made it, and the thread pointer from which that follows: both
 *    find the same. `low` is stored before `high` for it. On a stack of its
 *    own it is told apart as a coroutine is.
 *  - A thread that gets the stack of one that has ended gets fresh TLS.
 *  - A forked child has the mappings of its parent. One that was forked by a
 *    thread has no first thread any more, and that stack is unused memory.
 */
#include "hooks/snapshot.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "hooks/maps.h"
#include "shim/range.h"
#include "shim/sys.h"

#define GROWTH ((uintptr_t)128 << 20) /* the kernel keeps it free below */
#define WORD sizeof(uint64_t)

/* [low, high) of this thread's stack; 0, 0: not looked up; 1, 1: unknown. */
static __thread struct {
    _Atomic uintptr_t low, high;
} own __attribute__((tls_model("initial-exec")));

static struct {
    uintptr_t top, thread;
} first;

/* rip is that of the second instruction, where the others are as they are.
 * Returns rsp: a handler may fork, and in the child's file it is not there. */
static inline __attribute__((always_inline)) uintptr_t
take_registers(struct trace_stack *to)
{
    uintptr_t sp;

    _Static_assert(offsetof(struct trace_stack, rsp) == 8 &&
                       offsetof(struct trace_stack, rbp) == 16 &&
                       offsetof(struct trace_stack, rbx) == 24 &&
                       offsetof(struct trace_stack, r12) == 32 &&
                       offsetof(struct trace_stack, r15) == 56,
                   "as below");
    __asm__ volatile("lea 0(%%rip), %0\n\t"
                     "mov %0, (%1)\n\t"
                     "mov %%rsp, 8(%1)\n\t"
                     "mov %%rbp, 16(%1)\n\t"
                     "mov %%rbx, 24(%1)\n\t"
                     "mov %%r12, 32(%1)\n\t"
                     "mov %%r13, 40(%1)\n\t"
                     "mov %%r14, 48(%1)\n\t"
                     "mov %%r15, 56(%1)\n\t"
                     "mov %%rsp, %0"
                     : "=&a"(sp)
                     : "r"(to)
                     : "memory");
    return sp;
}

/* Where the mapping begins that holds `at`, or 0. */
static uintptr_t mapping_of(uintptr_t at, bool *guarded, char *buffer,
                            size_t room)
{
    uintptr_t start = 0, guard_end = 0; /* of the last nobody can read */
    struct maps m;

    for (maps_open(&m, buffer, room); maps_next(&m);) {
        if (!m.line.readable) {
            guard_end = m.line.end;
        } else if (at >= m.line.start && at < m.line.end) {
            start = m.line.start;
            *guarded = guard_end == start;
        }
    }
    return maps_close(&m) ? start : 0;
}

/* Is it the one that runs on the stack of the process? */
static bool is_first(uintptr_t thread)
{
    return first.thread && thread == first.thread;
}

static __attribute__((noinline)) void learn(char *buffer, size_t room)
{
    uintptr_t thread = (uintptr_t)__builtin_thread_pointer();
    bool of_process = is_first(thread);
    uintptr_t at = of_process ? first.top : thread;
    bool guarded = false;
    uintptr_t start = mapping_of(at, &guarded, buffer, room);
    bool known = start &&
                 (of_process ||
                  (guarded &&
                   (first.thread || sys(SYS_gettid) != sys(SYS_getpid))));

    /* release S1: pairs with S2, for who has our thread pointer; a handler
     * that interrupts this finds the same */
    atomic_store_explicit(&own.low, known ? start : 1,
                          memory_order_relaxed);
    atomic_store_explicit(&own.high, known ? at : 1, memory_order_release);
}

void snapshot_start(uintptr_t top, uintptr_t thread)
{
    char text[1024];

    first.top = top;
    first.thread = thread;
    learn(text, sizeof(text));
}

/* How much above sp is the thread's own; 0: it is not on its own stack. */
static inline uintptr_t above(uintptr_t sp)
{
    /* acquire S2: pairs with S1, `low` belongs to it */
    uintptr_t high = atomic_load_explicit(&own.high, memory_order_acquire);

    return sp < high &&
                   sp >= atomic_load_explicit(&own.low, memory_order_relaxed)
               ? high - sp
               : 0;
}

/* Has the stack of the process perhaps grown since? */
static bool may_have_grown(uintptr_t sp)
{
    uintptr_t low = atomic_load_explicit(&own.low, memory_order_relaxed);

    return sp < low && low - sp < GROWTH &&
           is_first((uintptr_t)__builtin_thread_pointer());
}

/*
 * In pieces that end with a page, as nothing of a piece need be read if some
 * of it cannot be. The kernel takes the list before it copies, so it may lie
 * where the copy goes.
 */
static __attribute__((noinline)) size_t copy_foreign(uint8_t *to,
                                                     uintptr_t sp, size_t n)
{
    struct iovec *all = (struct iovec *)to, *piece = all + 1;
    size_t pieces = 0;
    long got;

    all->iov_base = to;
    all->iov_len = n;
    for (size_t len; n; n -= len, sp += len) {
        len = PAGE_SIZE - (sp & (PAGE_SIZE - 1));
        if (len > n)
            len = n;
        piece[pieces++] = (struct iovec){(void *)sp, len};
    }
    got = sys(SYS_process_vm_readv, sys(SYS_getpid), all, 1, piece, pieces, 0);
    return got > 0 ? (size_t)got & ~(WORD - 1) : 0;
}

static inline void copy_own(uint8_t *to, uintptr_t sp, size_t n)
{
    size_t words = n / WORD;

    __asm__ volatile("rep movsq"
                     : "+D"(to), "+S"(sp), "+c"(words)
                     :
                     : "memory");
}

__attribute__((noinline)) size_t snapshot_take(struct trace_stack *to,
                                               size_t max)
{
    size_t n = (max - sizeof(*to)) & ~(WORD - 1);
    uint8_t *memory = (uint8_t *)(to + 1);
    uintptr_t own_bytes, sp = take_registers(to);

    if (__builtin_expect(
            !atomic_load_explicit(&own.high, memory_order_relaxed), 0) ||
        __builtin_expect(may_have_grown(sp), 0))
        learn((char *)memory, n);
    own_bytes = above(sp) & ~(WORD - 1);
    if (__builtin_expect(own_bytes != 0, 1)) {
        if (n > own_bytes)
            n = own_bytes;
        copy_own(memory, sp, n);
    } else {
        n = copy_foreign(memory, sp, n);
        if (!n)
            return 0;
    }
    to->bytes = n;
    return sizeof(*to) + n;
}
