/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Children that share the parent's memory or stack for a while: vfork,
 * posix_spawn, clone, and the same through syscall(), where the child returns
 * from the very call site on its parent's stack, or on a new one.
 */
#include <linux/sched.h>
#include <stdint.h>
#include <sched.h>
#include <spawn.h>
#include <sys/syscall.h>

#include "victim.h"

#define ROUNDS 50
#define STACK 65536

extern char **environ;
static char *page;          /* unmapped by a child that shares our memory */
static char *stack;

/*
 * vfork through syscall(): the child may call nothing and push nothing, since
 * the slot below the stack pointer holds its parent's return address.
 */
long vfork_by_syscall(void);
__asm__(".text\n"
        ".globl vfork_by_syscall\n"
        "vfork_by_syscall:\n"
        "  sub $8, %rsp\n"
        "  mov $58, %edi\n" /* SYS_vfork */
        "  xor %eax, %eax\n"
        "  call syscall@PLT\n"
        "  test %rax, %rax\n"
        "  jnz 1f\n"
        "  mov $7, %edi\n"
        "  mov $60, %eax\n" /* SYS_exit */
        "  syscall\n"
        "1: add $8, %rsp\n"
        "  ret\n");

static int in_child(void *arg)
{
    char *mine = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)arg;
    mine[0] = 1;
    if (madvise(mine, PAGE, MADV_DONTNEED) || mine[0] || munmap(mine, PAGE))
        _exit(1);
    _exit(munmap(page, PAGE) ? 2 : 7);
}

/* Where a child that was cloned by syscall() onto a new stack returns to. */
static void in_raw_child(void)
{
    in_child(NULL);
}

static int ended(pid_t pid, int with)
{
    int status = pid > 0 ? wait_for(pid, 5) : -1;

    return WIFEXITED(status) && WEXITSTATUS(status) == with;
}

/* A new stack whose top is the return address of syscall() in the child. */
static uint64_t *raw_stack(void)
{
    uint64_t *top = (uint64_t *)(stack + STACK - 256);

    top[0] = (uint64_t)(uintptr_t)in_raw_child;
    return top;
}

static char *const argv_true[] = {"true", NULL};

/* Functions of their own: nothing else may live in a frame that vforks. */
static __attribute__((noinline)) pid_t vfork_exec(void)
{
    pid_t pid = vfork();

    if (pid == 0) {
        execv("/bin/true", argv_true);
        _exit(1);
    }
    return pid;
}

static __attribute__((noinline)) pid_t vfork_release(void)
{
    pid_t pid = vfork();

    if (pid == 0)
        _exit(munmap(page, PAGE) ? 1 : 7);
    return pid;
}

static void test_vfork(void)
{
    int good = 1, unmapped = 1, spawned = 1, raw_good = 1;

    for (int i = 0; i < ROUNDS; i++) {
        pid_t pid;

        good &= ended(vfork_exec(), 0);
        page = fresh(PAGE);
        unmapped &= ended(vfork_release(), 7) && !is_mapped(page);
        if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv_true, environ))
            pid = -1;
        spawned &= ended(pid, 0);
        raw_good &= ended((pid_t)vfork_by_syscall(), 7);
    }
    check(good, "vfork and exec");
    check(unmapped, "munmap in a vfork child is seen by the parent");
    check(spawned, "posix_spawn");
    check(raw_good, "syscall(SYS_vfork)");
    check(posix_spawn(&(pid_t){0}, "/none", NULL, NULL, argv_true, environ) ==
              ENOENT, "posix_spawn of nothing");
    check(system("exit 5") == 5 << 8, "system");
}

static void test_clone(void)
{
    int vm = CLONE_VM | CLONE_VFORK | SIGCHLD;
    int good = 1, raw_good = 1, raw3 = 1, plain = 1, private = 1;

    for (int i = 0; i < ROUNDS; i++) {
        struct clone_args args = {.flags = CLONE_VM | CLONE_VFORK,
                                  .exit_signal = SIGCHLD};
        long pid;

        page = fresh(PAGE);
        pid = clone(in_child, stack + STACK, vm, NULL);
        good &= ended((pid_t)pid, 7) && !is_mapped(page);

        page = fresh(PAGE);
        pid = syscall(SYS_clone, vm, raw_stack(), NULL, NULL, 0);
        raw_good &= ended((pid_t)pid, 7) && !is_mapped(page);

        page = fresh(PAGE);
        args.stack = (uintptr_t)stack;
        args.stack_size = (uintptr_t)raw_stack() - (uintptr_t)stack;
        pid = syscall(SYS_clone3, &args, sizeof args);
        if (pid > 0 || errno != ENOSYS)
            raw3 &= ended((pid_t)pid, 7) && !is_mapped(page);

        page = fresh(PAGE);
        pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
        if (pid == 0)
            in_child(NULL);
        plain &= ended((pid_t)pid, 7) && is_mapped(page);
        pid = clone(in_child, stack + STACK, SIGCHLD, NULL);
        private &= ended((pid_t)pid, 7) && is_mapped(page);
        munmap(page, PAGE);
    }
    check(good, "clone, memory shared");
    check(raw_good, "syscall(SYS_clone), memory shared, new stack");
    check(raw3, "syscall(SYS_clone3), memory shared, new stack");
    check(plain, "syscall(SYS_clone) like fork");
    check(private, "clone, memory copied");
}

/* Releases in a loop, sharing memory and thread pointer with its parent. */
static int in_twin(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20000; i++) {
        char *p = (char *)RAW(SYS_mmap, 0, 2 * PAGE, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        p[0] = 1;
        if (madvise(p, PAGE, MADV_DONTNEED) || p[0] || munmap(p, 2 * PAGE))
            RAW(SYS_exit, 1);
    }
    RAW(SYS_exit, 7);
    return 0;
}

static void test_twins(void)
{
    pid_t pid = clone(in_twin, stack + STACK, CLONE_VM | SIGCHLD, NULL);
    int good = 1;

    for (int i = 0; i < 20000; i++) {
        char *p = fresh(2 * PAGE);

        good &= madvise(p, PAGE, MADV_DONTNEED) == 0 && p[0] == 0 &&
                munmap(p, 2 * PAGE) == 0;
    }
    check(ended(pid, 7) && good, "two processes with one thread pointer");
}

int main(void)
{
    stack = fresh(STACK);
    test_vfork();
    test_clone();
    test_twins();
    return victim_end();
}
