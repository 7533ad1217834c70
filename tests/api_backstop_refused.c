/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LAPSE_BACKSTOP=uffd where the kernel refuses userfaultfd: this program runs
 * itself behind a filter that does, and looks at what it then says.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "api.h"

static bool forbid(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, code};

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

int main(int argc, char **argv)
{
    char text[2000];
    int pair[2], status, lines = 0;
    ssize_t n, len = 0;
    pid_t pid;

    if (argc > 1)
        return inside();
    need(pipe(pair) == 0, "pipe");
    pid = fork();
    if (!pid) {
        dup2(pair[1], 2);
        close(pair[0]);
        close(pair[1]);
        if (!forbid())
            _exit(77);
        setenv("LAPSE_BACKSTOP", "uffd", 1);
        execl("/proc/self/exe", argv[0], "inside", NULL);
        _exit(99);
    }
    close(pair[1]);
    while ((n = read(pair[0], text + len, sizeof text - 1 - len)) > 0)
        len += n;
    text[len] = 0;
    for (ssize_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        printf("no seccomp filter can be set here\n");
        return 77;
    }
    check(status == 0, "runs on: wait status %#x", (unsigned)status);
    check(lines == 1 && strstr(text, "refuses userfaultfd"),
          "says so, once: %s", text);
    return api_end();
}
