/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A subscriber that comes while a release is in its system call, which began
 * when nobody was subscribed and nobody had asked how long the segment is.
 * The kernel stops the call at its entry for us: a seccomp filter of that one
 * thread turns it into a signal, whose handler waits, then makes the call.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "api.h"

#define PAGES 4
#define LET_PASS 0x1a95e /* as an argument that the call has not */

static atomic_int stopped, go_on;

static long call(long nr, long a, long b, long c, long d)
{
    register long r10 __asm__("r10") = d;
    long ret;

    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return ret;
}

static void on_sigsys(int sig, siginfo_t *info, void *context)
{
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;

    (void)sig;
    atomic_store(&stopped, 1);
    while (!atomic_load(&go_on))
        sleep_us(100);
    g[REG_RAX] = call(info->si_syscall, g[REG_RDI], g[REG_RSI], g[REG_RDX],
                      LET_PASS);
}

static void filter(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_shmdt, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_shmat, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, LET_PASS, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};

    need(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    need(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0),
         "seccomp");
}

static char *segment;
static int id;

static void *detach(void *unused)
{
    (void)unused;
    filter();
    need(!shmdt(segment), "shmdt");
    return NULL;
}

static void *attach_over(void *unused)
{
    (void)unused;
    filter();
    need(shmat(id, segment, SHM_REMAP) == segment, "shmat");
    return NULL;
}

/* Polls one round. */
static bool told(lapse_handle s, const char *p, uint32_t flags)
{
    struct lapse_event e[16];
    int n = lapse_poll(s, e, 16);

    for (int i = 0; i < n; i++)
        if (event_overlaps(&e[i], p, PAGE) && e[i].flags == flags)
            return true;
    return false;
}

static void comes_during(const char *what, void *(*release)(void *))
{
    pthread_t t;
    lapse_handle s;
    char *last = segment + (PAGES - 1) * PAGE;

    atomic_store(&stopped, 0);
    atomic_store(&go_on, 0);
    pthread_create(&t, NULL, release, NULL);
    while (!atomic_load(&stopped))
        sleep_us(100);
    s = subscribe(LAPSE_POLL, 0, NULL, NULL);
    lapse_watch(s, last, PAGE);
    check(lapse_pending(s) && told(s, last, LAPSE_EVENT_OPEN),
          "%s: the last page is met by a watch while it goes", what);
    atomic_store(&go_on, 1);
    pthread_join(t, NULL);
    check(lapse_pending(s) && told(s, last, 0), "%s: told when it is over",
          what);
    check(!told(s, last, 0) && !lapse_pending(s), "%s: and no more", what);
    lapse_unsubscribe(s);
}

int main(void)
{
    struct sigaction act = {.sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO};

    alarm(30);
    sigaction(SIGSYS, &act, NULL);
    id = shmget(IPC_PRIVATE, PAGES * PAGE, IPC_CREAT | 0600);
    need(id >= 0, "shmget");
    segment = shmat(id, NULL, 0);
    need(segment != (void *)-1, "shmat");
    comes_during("shmdt", detach);
    segment = fresh(PAGES * PAGE);
    comes_during("shmat SHM_REMAP", attach_over);
    shmctl(id, IPC_RMID, NULL);
    return api_end();
}
