/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A timer signal every 100 us, whose handler releases memory on a signal stack
 * with 2 KiB to spare and a guard page below, while the main program does the
 * same. Nothing crashes, every result is right, errno is kept, and a release
 * takes less than 1 KiB of stack.
 * Usage: signals [HANDLER-RUNS]
 */
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/time.h>

#include "victim.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif
#define SPARE 2048
#define OWN_FRAME 256 /* what the handler itself may take */
#define PATTERN 0x7e

static volatile sig_atomic_t runs, wrong, stop;
static uintptr_t handler_frame; /* written by the handler only */

/* One of each; returns what went wrong, 0 if nothing did. */
static int release_all(void)
{
    char *p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int bad = 0;

    if (p == MAP_FAILED)
        return 1;
    p[0] = p[PAGE] = p[3 * PAGE] = 1;
    bad |= (madvise(p, PAGE, MADV_DONTNEED) != 0 || p[0] != 0) << 1;
    bad |= (mmap(p + PAGE, PAGE, PROT_READ, MAP_FIXED | MAP_PRIVATE |
                 MAP_ANONYMOUS, -1, 0) != p + PAGE || p[PAGE] != 0) << 2;
    bad |= (munmap(p + 2 * PAGE, PAGE) != 0) << 3;
    bad |= (madvise(p, 4 * PAGE, MADV_DONTNEED) != -1 || errno != ENOMEM) << 4;
    bad |= (munmap(p, 4 * PAGE) != 0) << 5;
    return bad;
}

/* Once: armed again at the handler's end, or a slow machine would run nothing
 * but handlers. */
static int arm(long us)
{
    return setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, us}}, NULL);
}

static void on_alarm(int number)
{
    int saved = errno;

    (void)number;
    handler_frame = (uintptr_t)__builtin_frame_address(0);
    wrong |= release_all();
    runs++;
    if (!stop)
        arm(100);
    errno = saved;
}

int main(int argc, char **argv)
{
    long target = argc > 1 ? atol(argv[1]) : 3000;
    size_t least = getauxval(AT_MINSIGSTKSZ), size, depth = 0;
    struct sigaction act = {.sa_handler = on_alarm,
                            .sa_flags = SA_ONSTACK | SA_RESTART};
    double end = seconds() + 20;
    char *area, *bottom;
    int bad = 0;

    if (least < 2048)
        least = 2048;
    size = least + SPARE;
    area = fresh(PAGE + size);
    bottom = area + PAGE;
    memset(bottom, PATTERN, size);
    bad |= release_all(); /* binds the functions: ld.so needs more stack */
    if (mprotect(area, PAGE, PROT_NONE) != 0 ||
        sigaltstack(&(stack_t){.ss_sp = bottom, .ss_size = size}, NULL) != 0 ||
        sigaction(SIGALRM, &act, NULL) != 0 ||
        arm(100) != 0) {
        perror("signals");
        return 2;
    }
    while (runs < target && seconds() < end) {
        void *block = malloc(300000);

        KEEP(block);
        bad |= release_all();
        errno = 4711;
        free(block);
        bad |= (errno != 4711) << 6;
    }
    stop = 1;
    arm(0);

    if (runs < target)
        differs("only %d handler runs in 20 s", (int)runs);
    if (bad || wrong)
        differs("results: main %#x, handler %#x", bad, (unsigned)wrong);
    else
        printf("ok results of main and handler\n");
    while (bottom[depth] == PATTERN)
        depth++;
    depth = handler_frame - (uintptr_t)(bottom + depth);
    if (depth > 1024 + OWN_FRAME)
        differs("the handler took %zu bytes of stack", depth);
    else
        printf("ok stack of the handler\n");
    return victim_end();
}
