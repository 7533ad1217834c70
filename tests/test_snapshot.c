/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The copy of a stack: as much as there is, and never a byte beyond, whatever
 * the stack is that it is taken on.
 */
#include "hooks/snapshot.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGE 4096u
#define MOST (sizeof(struct trace_stack) + 16384)

static struct {
    struct trace_stack head;
    uint8_t memory[65536];
} copy;

static void start(void)
{
    snapshot_start(getauxval(AT_EXECFN),
                   (uintptr_t)__builtin_thread_pointer());
}

static size_t take(size_t max)
{
    size_t used;

    memset(&copy, 0, sizeof(copy));
    used = snapshot_take(&copy.head, max);
    if (used)
        cr_expect_eq(used, sizeof(copy.head) + copy.head.bytes);
    return used;
}

static uint64_t copied(const void *at)
{
    uint64_t word = 0, offset = (uintptr_t)at - copy.head.rsp;

    cr_assert_leq(offset + sizeof(word), copy.head.bytes);
    memcpy(&word, copy.memory + offset, sizeof(word));
    return word;
}

/* A frame that is a page or more above the end of who takes the copy. */
static void take_below_page(size_t max)
{
    volatile uint64_t page[PAGE / 8];

    page[PAGE / 8 - 1] = 0x1234567890abcdef;
    take(max);
    cr_expect_eq(copied((void *)&page[PAGE / 8 - 1]), 0x1234567890abcdef);
}

Test(snapshot, has_registers_and_memory_of_the_same_moment, .init = start)
{
    volatile uint64_t mark = 0xfeedbeefcafe;
    uint64_t page[2 * PAGE / 8];

    __asm__ volatile("" : : "r"(page) : "memory");
    cr_assert_eq(take(SNAPSHOT_MIN + 2 * PAGE), SNAPSHOT_MIN + 2 * PAGE);
    cr_expect_eq(copied((void *)&mark), mark);
    cr_expect(copy.head.rsp < (uintptr_t)&mark);
    cr_expect(copy.head.rip - (uintptr_t)snapshot_take < 256);
    cr_expect_eq(take(SNAPSHOT_MIN), SNAPSHOT_MIN);
}

/* Those that the function itself need not change. */
Test(snapshot, has_the_registers_of_who_called, .init = start)
{
    struct trace_stack *to = &copy.head;
    size_t max = SNAPSHOT_MIN;

    __asm__ volatile("movabs $0x1212121212121212, %%r12\n\t"
                     "movabs $0x1313131313131313, %%r13\n\t"
                     "movabs $0x1414141414141414, %%r14\n\t"
                     "movabs $0x1515151515151515, %%r15\n\t"
                     "sub $128, %%rsp\n\t"
                     "call snapshot_take\n\t"
                     "add $128, %%rsp"
                     : "+D"(to), "+S"(max)
                     :
                     : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12",
                       "r13", "r14", "r15", "memory", "cc");
    cr_expect_eq(copy.head.r12, 0x1212121212121212);
    cr_expect_eq(copy.head.r13, 0x1313131313131313);
    cr_expect_eq(copy.head.r14, 0x1414141414141414);
    cr_expect_eq(copy.head.r15, 0x1515151515151515);
}

Test(snapshot, ends_where_the_stack_of_the_process_ends, .init = start)
{
    uintptr_t top = getauxval(AT_EXECFN) & ~(uintptr_t)7;

    take(sizeof(copy));
    cr_expect(copy.head.bytes == 65536 ||
              copy.head.rsp + copy.head.bytes == top);
}

static __attribute__((noinline)) void deep(unsigned pages)
{
    volatile uint64_t page[PAGE / 8];

    page[0] = pages;
    if (pages)
        deep(pages - 1);
    else
        take_below_page(MOST);
    page[1] = page[0];
}

Test(snapshot, follows_the_stack_of_the_process_as_it_grows, .init = start)
{
    deep(1);
    deep(300); /* it begins with 132 KiB */
    cr_expect_eq(copy.head.bytes, MOST - sizeof(copy.head));
    deep(1200);
    cr_expect_eq(copy.head.bytes, MOST - sizeof(copy.head));
}

static void *in_thread(void *arg)
{
    uintptr_t self = (uintptr_t)__builtin_thread_pointer();

    take(sizeof(copy));
    cr_expect_eq(copy.head.rsp + copy.head.bytes, self & ~(uintptr_t)7);
    deep(20);
    cr_expect_eq(copy.head.bytes, MOST - sizeof(copy.head));
    return arg;
}

static void run_thread(const pthread_attr_t *attr, void *(*body)(void *),
                       void *arg)
{
    pthread_t thread;

    cr_assert_eq(pthread_create(&thread, attr, body, arg), 0);
    pthread_join(thread, NULL);
}

Test(snapshot, ends_at_the_thread_pointer, .init = start)
{
    for (int i = 0; i < 20; i++) /* on one stack, one after the other */
        run_thread(NULL, in_thread, NULL);
}

/* Memory with a hole before and behind it. */
static uint8_t *island(size_t bytes)
{
    uint8_t *at = mmap(NULL, bytes + 2 * PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    cr_assert_neq(at, MAP_FAILED);
    munmap(at, PAGE);
    munmap(at + PAGE + bytes, PAGE);
    return at + PAGE;
}

static void ends_with(const uint8_t *stack, size_t bytes)
{
    take(sizeof(copy));
    cr_expect_eq(copy.head.rsp + copy.head.bytes, (uintptr_t)stack + bytes);
    take_below_page(MOST);
}

static ucontext_t outside, coroutine;
static uint8_t *foreign;
static const size_t foreign_bytes = 32 * PAGE;

static void run_foreign(void (*body)(void))
{
    cr_assert_eq(getcontext(&coroutine), 0);
    coroutine.uc_stack.ss_sp = foreign;
    coroutine.uc_stack.ss_size = foreign_bytes;
    coroutine.uc_link = &outside;
    makecontext(&coroutine, body, 0);
    swapcontext(&outside, &coroutine);
}

static void at_end(void)
{
    ends_with(foreign, foreign_bytes);
}

Test(snapshot, ends_where_the_stack_of_a_coroutine_ends, .init = start)
{
    foreign = island(foreign_bytes);
    run_foreign(at_end);
}

static void *at_end_in_thread(void *arg)
{
    take(MOST); /* it knows its own stack first */
    run_foreign(at_end);
    return arg;
}

Test(snapshot, ends_there_in_a_thread_too, .init = start)
{
    foreign = island(foreign_bytes);
    run_thread(NULL, at_end_in_thread, NULL);
}

static void on_signal(int sig)
{
    (void)sig;
    at_end();
}

Test(snapshot, ends_where_the_stack_of_a_handler_ends, .init = start)
{
    stack_t alternate = {.ss_size = foreign_bytes};
    struct sigaction action = {.sa_handler = on_signal,
                               .sa_flags = SA_ONSTACK};

    foreign = island(foreign_bytes);
    alternate.ss_sp = foreign;
    cr_assert_eq(sigaltstack(&alternate, NULL), 0);
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
}

static void *on_users_stack(void *arg)
{
    ends_with(arg, 64 * PAGE);
    return NULL;
}

Test(snapshot, ends_where_the_stack_of_a_users_thread_ends, .init = start)
{
    uint8_t *stack = island(64 * PAGE);
    pthread_attr_t attr;

    pthread_attr_init(&attr);
    cr_assert_eq(pthread_attr_setstack(&attr, stack, 64 * PAGE), 0);
    run_thread(&attr, on_users_stack, stack);
}

static int on_cloned_stack(void *arg)
{
    take(sizeof(copy));
    return copy.head.rsp + copy.head.bytes == (uintptr_t)arg + 64 * PAGE ? 7
                                                                         : 1;
}

static void clone_with(int flags)
{
    uint8_t *stack = island(64 * PAGE);
    int status = 0;
    pid_t child = clone(on_cloned_stack, stack + 64 * PAGE,
                        flags | SIGCHLD, stack);

    cr_assert_gt(child, 0);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 7,
              "flags %#x: %#x", flags, status);
}

/* It shares all that is kept for this thread. */
Test(snapshot, ends_there_in_clones_without_tls_of_their_own, .init = start)
{
    clone_with(CLONE_VM);
    take(MOST);
    clone_with(CLONE_VM);
    clone_with(CLONE_VM | CLONE_VFORK);
    clone_with(0);
    cr_expect_eq(take(SNAPSHOT_MIN), SNAPSHOT_MIN);
}

Test(snapshot, works_in_a_vfork_child, .init = start)
{
    static volatile size_t used;
    int status = 0;
    pid_t child = vfork();

    if (!child) {
        used = snapshot_take(&copy.head, SNAPSHOT_MIN);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(used, SNAPSHOT_MIN);
    cr_expect_eq(take(SNAPSHOT_MIN), SNAPSHOT_MIN);
}

/*
 * Two neighbours of a thread in one mapping, since it has no guard: what was
 * below it is no part of its stack, and is taken away while it is used as one.
 */
static void take_and_cut(void)
{
    uint8_t *cut = foreign + foreign_bytes;

    take(MOST);
    cr_assert_eq(munmap(cut, 2 * PAGE), 0);
    ends_with(foreign, foreign_bytes);
}

static void *with_neighbours(void *arg)
{
    run_foreign(take_and_cut);
    return arg;
}

Test(snapshot, takes_no_neighbour_for_a_stack, .init = start)
{
    const size_t stack_bytes = 64 * PAGE;
    uint8_t *all = island(foreign_bytes + 2 * PAGE + stack_bytes);
    pthread_attr_t attr;

    foreign = all;
    pthread_attr_init(&attr);
    cr_assert_eq(pthread_attr_setstack(&attr, all + foreign_bytes + 2 * PAGE,
                                       stack_bytes),
                 0);
    run_thread(&attr, with_neighbours, NULL);
}

/* A neighbour that comes and goes at any moment. */
static _Atomic bool stop;

static void *come_and_go(void *at)
{
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        mmap(at, PAGE, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        munmap(at, PAGE);
    }
    return NULL;
}

static void take_often(void)
{
    for (int i = 0; i < 100000; i++) {
        snapshot_take(&copy.head, MOST);
        cr_assert_geq(copy.head.rsp + copy.head.bytes,
                      (uintptr_t)foreign + foreign_bytes);
    }
}

Test(snapshot, stands_a_neighbour_that_vanishes, .init = start)
{
    pthread_t thread;

    foreign = island(foreign_bytes);
    cr_assert_eq(pthread_create(&thread, NULL, come_and_go,
                                foreign + foreign_bytes),
                 0);
    run_foreign(take_often);
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    pthread_join(thread, NULL);
}
