/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LAPSE_BACKSTOP=uffd where the kernel refuses userfaultfd, or a thread: this
 * program runs itself behind a filter that does, and looks at what it then
 * says.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "api.h"

/* clone3 as a kernel does that is older: then libc asks by clone. */
static bool forbid(unsigned call, unsigned error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* All as without the backstop. */
static int inside(void)
{
    struct lapse_coverage rows[64];
    lapse_handle s = subscribe(LAPSE_POLL, 0, NULL, NULL);
    int n = lapse_coverage(rows, 64), uncovered = 0;
    struct lapse_event e;
    char *p = fresh(4 * PAGE);

    for (int i = 0; i < n && i < 64; i++)
        uncovered += (!strcmp(rows[i].path, "inline system calls") ||
                      !strcmp(rows[i].path, "io_uring")) &&
                     rows[i].mechanism == LAPSE_UNCOVERED &&
                     strstr(rows[i].detail, "userfaultfd");
    if (uncovered != 2 || lapse_watch(s, p, 4 * PAGE))
        return 1;
    munmap(p, PAGE);
    if (lapse_poll(s, &e, 1) != 1 || e.addr != (uintptr_t)p)
        return 2;
    return lapse_unwatch(s, p, 4 * PAGE) || lapse_unsubscribe(s) ? 3 : 0;
}

static void run(char *self, unsigned call, unsigned error, const char *says)
{
    char text[2000];
    int pair[2], status, lines = 0;
    ssize_t n, len = 0;
    pid_t pid;

    need(pipe(pair) == 0, "pipe");
    pid = fork();
    if (!pid) {
        dup2(pair[1], 2);
        close(pair[0]);
        close(pair[1]);
        if (!forbid(call, error))
            _exit(77);
        setenv("LAPSE_BACKSTOP", "uffd", 1);
        execl("/proc/self/exe", self, "inside", NULL);
        _exit(99);
    }
    close(pair[1]);
    while ((n = read(pair[0], text + len, sizeof text - 1 - (size_t)len)) > 0)
        len += n;
    close(pair[0]);
    text[len] = 0;
    for (ssize_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        printf("no seccomp filter can be set here\n");
        exit(77);
    }
    check(status == 0, "runs on: wait status %#x", (unsigned)status);
    check(lines == 1 && strstr(text, says), "says so, once: %s", text);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1)
        return inside();
    run(argv[0], SYS_userfaultfd, EPERM, "refuses userfaultfd");
#ifndef __SANITIZE_THREAD__ /* it wants one of its own */
    run(argv[0], SYS_clone, EAGAIN, "no thread can be made");
#endif
    return api_end();
}
