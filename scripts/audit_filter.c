/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program that the kernel runs at each system call of the command: at
 * those that may release memory the thread stops for its tracer, which gets
 * the number of the row in audit_calls[]; all others go on at once.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "audit.h"

enum {
    ROOM = 512,
    X32 = 0x40000000 /* the calls of x32 programs: the same, with this bit */
};

struct program {
    struct sock_filter code[ROOM];
    unsigned short length;
};

static void emit(struct program *p, unsigned short code, uint32_t k,
                 unsigned char yes, unsigned char no)
{
    p->code[p->length++] = (struct sock_filter){code, yes, no, k};
}

static void load(struct program *p, size_t offset)
{
    emit(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

/* Little-endian: the lower half comes first. */
static void load_argument(struct program *p, unsigned n, bool upper)
{
    load(p, offsetof(struct seccomp_data, args) + 8 * n + 4 * upper);
}

/* Ahead of "stop" and, behind it, "go on": falls through to the former. */
static void emit_condition(struct program *p, const struct audit_call *call)
{
    unsigned char left;

    if (call->when == WHEN_ALWAYS)
        return;
    load_argument(p, call->argument, false);
    switch (call->when) {
    case WHEN_MASKED:
        emit(p, BPF_ALU | BPF_AND | BPF_K, call->mask, 0, 0);
        emit(p, BPF_JMP | BPF_JEQ | BPF_K, call->value, 0, 1);
        break;
    case WHEN_ANY:
        emit(p, BPF_JMP | BPF_JSET | BPF_K, call->mask, 0, 1);
        break;
    case WHEN_NONZERO:
        emit(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2);
        load_argument(p, call->argument, true);
        emit(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0);
        break;
    case WHEN_ADVICE:
        for (size_t i = 0; i < audit_advice_count; i++) {
            left = (unsigned char)(audit_advice_count - 1 - i);
            emit(p, BPF_JMP | BPF_JEQ | BPF_K, audit_advice[i], left,
                 left ? 0 : 1);
        }
        break;
    case WHEN_ALWAYS:
        break;
    }
}

static void emit_calls(struct program *p, bool narrow)
{
    for (size_t i = 0; i < audit_calls_count; i++) {
        const struct audit_call *call = &audit_calls[i];
        int nr = narrow ? call->nr32 : call->nr;
        unsigned short at = p->length;

        if (nr == AUDIT_NONE)
            continue;
        emit(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, 0);
        emit_condition(p, call);
        emit(p, BPF_RET | BPF_K, SECCOMP_RET_TRACE | (uint32_t)i, 0, 0);
        emit(p, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
        p->code[at].jf = (unsigned char)(p->length - at - 1);
    }
    emit(p, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
}

static void emit_all(struct program *p)
{
    unsigned short at;

    load(p, offsetof(struct seccomp_data, arch));
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    at = p->length;
    emit(p, BPF_JMP | BPF_JA, 0, 0, 0);
    load(p, offsetof(struct seccomp_data, nr));
    emit(p, BPF_ALU | BPF_AND | BPF_K, ~(uint32_t)X32, 0, 0);
    emit_calls(p, false);
    p->code[at].k = (uint32_t)(p->length - at - 1);
    load(p, offsetof(struct seccomp_data, nr));
    emit_calls(p, true);
}

/* Without: the kernel would slow the whole command down for Spectre's sake. */
#define FLAGS SECCOMP_FILTER_FLAG_SPEC_ALLOW

int audit_filter_install(void)
{
    static struct program program;
    struct sock_fprog run;

    emit_all(&program);
    run = (struct sock_fprog){program.length, program.code};
    /* Root may do so without giving up what setuid programs need. */
    if (!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, FLAGS, &run))
        return 0;
    if (errno == EACCES && !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
        !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, FLAGS, &run))
        return 0;
    return errno;
}
