/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A system call keeps every register but rax, rcx and r11, and the 128 bytes
 * below the stack pointer; so must whatever stands at its site. Each libc
 * function is reached by a jump, with all registers and the bytes below its
 * stack pointer set to patterns, and both are looked at when it came back.
 * What libc itself changes is printed: it must be the same in every run.
 */
#include <cpuid.h>
#include <stdint.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "victim.h"

enum { RBX, RBP, R12, R13, R14, R15, RDI, RSI, RDX, R8, R9, R10, RCX, REGS };
static const char *const names[REGS] = {"rbx", "rbp", "r12", "r13", "r14",
                                        "r15", "rdi", "rsi", "rdx", "r8",
                                        "r9",  "r10", "rcx"};
#define KEPT_BY_ABI 6 /* the first six */
#define RED_ZONE 128
#define STACK 65536
#define PATTERN 0xa5

/* Shared with the assembly: fixed addresses, so that no register is needed. */
uint64_t probe_in[REGS], probe_out[REGS], probe_rax, probe_flags;
uint64_t probe_sp, probe_sp_after, probe_own_sp;
uint64_t probe_mask; /* XSAVE components; 0: only FXSAVE */
void *probe_function;
unsigned char probe_fp_in[12288] __attribute__((aligned(64)));
unsigned char probe_fp_out[12288] __attribute__((aligned(64)));
unsigned char probe_fp_own[12288] __attribute__((aligned(64)));
void probe_run(void);
void probe_back(void);

__asm__(".macro FP op, area\n"
        "  mov probe_mask(%rip), %rax\n"
        "  mov %rax, %rdx\n"
        "  shr $32, %rdx\n"
        "  test %rax, %rax\n"
        "  jz 1f\n"
        "  x\\op\\()64 \\area(%rip)\n"
        "  jmp 2f\n"
        "1: fx\\op\\()64 \\area(%rip)\n"
        "2:\n"
        ".endm\n"
        ".text\n"
        ".globl probe_run, probe_back\n"
        "probe_run:\n"
        "  push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
        "  FP save, probe_fp_own\n"
        "  FP rstor, probe_fp_in\n"
        "  mov %rsp, probe_own_sp(%rip)\n"
        "  mov probe_in+0(%rip), %rbx;  mov probe_in+8(%rip), %rbp\n"
        "  mov probe_in+16(%rip), %r12; mov probe_in+24(%rip), %r13\n"
        "  mov probe_in+32(%rip), %r14; mov probe_in+40(%rip), %r15\n"
        "  mov probe_in+48(%rip), %rdi; mov probe_in+56(%rip), %rsi\n"
        "  mov probe_in+64(%rip), %rdx; mov probe_in+72(%rip), %r8\n"
        "  mov probe_in+80(%rip), %r9;  mov probe_in+88(%rip), %r10\n"
        "  mov probe_in+96(%rip), %rcx\n"
        "  mov $0, %eax\n"
        "  mov probe_sp(%rip), %rsp\n"
        "  jmp *probe_function(%rip)\n"
        "probe_back:\n"
        "  mov %rsp, probe_sp_after(%rip)\n"
        "  mov probe_own_sp(%rip), %rsp\n"
        "  mov %rax, probe_rax(%rip)\n"
        "  mov %rbx, probe_out+0(%rip);  mov %rbp, probe_out+8(%rip)\n"
        "  mov %r12, probe_out+16(%rip); mov %r13, probe_out+24(%rip)\n"
        "  mov %r14, probe_out+32(%rip); mov %r15, probe_out+40(%rip)\n"
        "  mov %rdi, probe_out+48(%rip); mov %rsi, probe_out+56(%rip)\n"
        "  mov %rdx, probe_out+64(%rip); mov %r8,  probe_out+72(%rip)\n"
        "  mov %r9,  probe_out+80(%rip); mov %r10, probe_out+88(%rip)\n"
        "  mov %rcx, probe_out+96(%rip)\n"
        "  pushfq\n"
        "  pop probe_flags(%rip)\n"
        "  cld\n"
        "  FP save, probe_fp_out\n"
        "  FP rstor, probe_fp_own\n"
        "  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
        "  ret\n");

static struct part {
    unsigned at, len;
    const char *name;
} parts[40];
static unsigned part_count;

static void part_add(unsigned at, unsigned len, const char *name)
{
    parts[part_count++] = (struct part){at, len, name};
    for (unsigned i = 0; i < len; i++)
        probe_fp_in[at + i] = (unsigned char)(17 + 7 * i + at / 3);
}

/* Lays out an image of the FP state with a pattern in every register. */
static void fp_prepare(void)
{
    unsigned a, b, c, d;

    part_add(0, 2, "x87 control word");
    part_add(24, 4, "mxcsr");
    for (unsigned i = 0; i < 8; i++)
        part_add(32 + 16 * i, 10, "st/mm");
    part_add(160, 256, "xmm");
    memcpy(probe_fp_in, &(uint16_t){0x0f7f}, 2);      /* round to zero */
    memcpy(probe_fp_in + 24, &(uint32_t){0x7fa1}, 4); /* and sticky flags */
    probe_fp_in[4] = 0xff;                            /* all of st in use */

    __cpuid(1, a, b, c, d);
    if (!(c & (1u << 27)))
        return;
    __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    probe_mask = a & 0xe7; /* x87, SSE, AVX, AVX-512 */
    memcpy(probe_fp_in + 512, &probe_mask, 8);
    for (unsigned i = 2; i < 8; i++)
        if (probe_mask & (1u << i)) {
            unsigned len, at;

            __cpuid_count(0xd, i, len, at, c, d);
            part_add(at, len, i == 2 ? "ymm" : "avx512");
        }
}

static unsigned char *stack;

/*
 * Calls fn with these arguments. The site has its stack pointer `frame` bytes
 * below the one at entry: for all wrappers but mremap's that is 0.
 */
static long probe(const char *what, void *fn, unsigned frame, long a, long b,
                  long c, long d, long e, long f, long g)
{
    uint64_t *sp = (uint64_t *)(stack + STACK - 1024);
    unsigned char *zone = (unsigned char *)sp - frame - RED_ZONE;
    const long args[] = {a, b, c, d, e, f};
    const int order[] = {RDI, RSI, RDX, RCX, R8, R9};
    char changed[128] = "";
    unsigned kept = 0;

    for (unsigned i = 0; i < REGS; i++)
        probe_in[i] = 0x1111111111111111ul * (i + 1) ^ 0xf00d;
    for (unsigned i = 0; i < 6; i++)
        probe_in[order[i]] = (uint64_t)args[i];
    memset(stack, PATTERN, STACK);
    sp[0] = (uint64_t)(uintptr_t)probe_back;
    sp[1] = (uint64_t)g;
    probe_sp = (uint64_t)(uintptr_t)sp;
    probe_function = fn;
    probe_run();

    for (unsigned i = 0; i < RED_ZONE; i++)
        kept += zone[i] == PATTERN;
    for (unsigned i = 0; i < RCX; i++) { /* rcx: the kernel's to change */
        if (probe_in[i] == probe_out[i])
            continue;
        strcat(strcat(changed, " "), names[i]);
        if (i < KEPT_BY_ABI)
            differs("%s changed %s", what, names[i]);
    }
    for (unsigned i = 0; i < part_count; i++)
        if (memcmp(probe_fp_in + parts[i].at, probe_fp_out + parts[i].at,
                   parts[i].len))
            differs("%s changed %s", what, parts[i].name);
    if (probe_sp_after != probe_sp + 8)
        differs("%s moved the stack pointer", what);
    if (probe_flags & 0x400)
        differs("%s set the direction flag", what);
    /* With no frame of libc's own in between nothing writes here. */
    if (frame == 0 && kept != RED_ZONE)
        differs("%s: %u of %u bytes of red zone left", what, kept, RED_ZONE);
    printf("%s: changed by libc:%s; red zone %u\n", what,
           *changed ? changed : " none", kept);
    return (long)probe_rax;
}
#define PROBE_(what, fn, frame, a, b, c, d, e, f, g, ...)                  \
    probe(what, (void *)(fn), frame, (long)(a), (long)(b), (long)(c),      \
          (long)(d), (long)(e), (long)(f), (long)(g))
#define PROBE(...) PROBE_(__VA_ARGS__, 5, 6, 7, 8, 9, 10, 11)

#define GOOD(what, ...) check(PROBE(what, __VA_ARGS__) != -1, what)
#define BAD(what, ...) check(PROBE(what, __VA_ARGS__) == -1, what " bad")
#define MREMAP_FRAME 0x58 /* of glibc 2.36; others: fewer bytes are kept */

int main(void)
{
    int anon = MAP_PRIVATE | MAP_ANONYMOUS, rw = PROT_READ | PROT_WRITE;
    static char buffer[BUFSIZ];
    char *p = fresh(16 * PAGE), *end = sbrk(0);
    int id = shmget(IPC_PRIVATE, PAGE, 0600);
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    struct iovec v = {p + PAGE, PAGE};

    /* The break goes back to end: printf must have no memory beyond. */
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    stack = (unsigned char *)fresh(STACK);
    fp_prepare();

    GOOD("munmap", munmap, 0, p, PAGE);
    check(probe_in[RDI] == probe_out[RDI] && probe_in[RSI] == probe_out[RSI] &&
              probe_in[RDX] == probe_out[RDX] &&
              probe_in[R8] == probe_out[R8] && probe_in[R9] == probe_out[R9] &&
              probe_in[R10] == probe_out[R10], "munmap kept its arguments");
    BAD("munmap", munmap, 0, p + 1, PAGE);
    GOOD("madvise", madvise, 0, p + PAGE, PAGE, MADV_DONTNEED);
    BAD("madvise", madvise, 0, p + 1, PAGE, MADV_DONTNEED);
    GOOD("mmap", mmap, 0, 0, PAGE, rw, anon, -1, 0);
    GOOD("mmap fixed", mmap, 0, p, PAGE, rw, anon | MAP_FIXED, -1, 0);
    BAD("mmap", mmap, 0, p, PAGE, rw, MAP_PRIVATE, 9999, 0);
    GOOD("mremap", mremap, MREMAP_FRAME, p, PAGE, PAGE, 0);
    GOOD("mremap fixed", mremap, MREMAP_FRAME, p, PAGE, PAGE,
         MREMAP_MAYMOVE | MREMAP_FIXED, p + 2 * PAGE);
    BAD("mremap", mremap, MREMAP_FRAME, p, PAGE, PAGE, 0);
    GOOD("brk", brk, 0, end + PAGE);
    GOOD("brk down", brk, 0, end);
    check((int)PROBE("brk", brk, 0, 1ul << 60) == -1, "brk bad");
    GOOD("process_madvise", process_madvise, 0, self, &v, 1, MADV_DONTNEED, 0);
    BAD("process_madvise", process_madvise, 0, -1, &v, 1, MADV_DONTNEED, 0);
    BAD("remap_file_pages", remap_file_pages, 0, p + PAGE, PAGE, 0, 0, 0);
    if (id >= 0) {
        GOOD("shmat", shmat, 0, id, p + 8 * PAGE, SHM_REMAP);
        check((int)PROBE("shmdt", shmdt, 0, p + 8 * PAGE) == 0, "shmdt");
        check((int)PROBE("shmdt", shmdt, 0, p + 1) == -1, "shmdt bad");
        shmctl(id, IPC_RMID, NULL);
        BAD("shmat", shmat, 0, id, 0, 0);
    }
    GOOD("syscall", syscall, 0, SYS_munmap, p + 4 * PAGE, PAGE);
    GOOD("syscall of six", syscall, 0, SYS_mmap, p + 4 * PAGE, PAGE, rw,
         anon | MAP_FIXED, -1, 4 * PAGE);
    check(probe_out[RDI] == probe_in[RSI] && probe_out[RSI] == probe_in[RDX] &&
              probe_out[RDX] == probe_in[RCX] &&
              probe_out[R10] == probe_in[R8] &&
              probe_out[R8] == probe_in[R9] && probe_out[R9] == 4 * PAGE,
          "syscall moved its arguments and no more");
    GOOD("syscall getpid", syscall, 0, SYS_getpid);
    BAD("syscall", syscall, 0, SYS_munmap, p + 1, PAGE);
    return victim_end();
}
