/* SPDX-License-Identifier: BSD-3-Clause */
/* System calls that threads wait in, and what a descriptor in them is. */
#include <inttypes.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "remote.h"

static const struct call {
    long nr;
    const char *name;
    bool fd; /* the first argument is a descriptor */
} calls[] = {
    {SYS_read, "read", true}, {SYS_write, "write", true},
    {SYS_pread64, "pread", true}, {SYS_pwrite64, "pwrite", true},
    {SYS_readv, "readv", true}, {SYS_writev, "writev", true},
    {SYS_recvfrom, "recv", true}, {SYS_recvmsg, "recvmsg", true},
    {SYS_sendto, "send", true}, {SYS_sendmsg, "sendmsg", true},
    {SYS_accept, "accept", true}, {SYS_accept4, "accept", true},
    {SYS_connect, "connect", true}, {SYS_flock, "flock", true},
    {SYS_fcntl, "fcntl", true}, {SYS_ioctl, "ioctl", true},
    {SYS_fsync, "fsync", true}, {SYS_fdatasync, "fdatasync", true},
    {SYS_epoll_wait, "epoll_wait", true},
    {SYS_epoll_pwait, "epoll_pwait", true},
    {SYS_io_uring_enter, "io_uring_enter", true},
    {SYS_poll, "poll", false}, {SYS_ppoll, "ppoll", false},
    {SYS_select, "select", false}, {SYS_pselect6, "pselect", false},
    {SYS_nanosleep, "nanosleep", false},
    {SYS_clock_nanosleep, "clock_nanosleep", false},
    {SYS_pause, "pause", false}, {SYS_wait4, "wait4", false},
    {SYS_waitid, "waitid", false}, {SYS_rt_sigsuspend, "sigsuspend", false},
    {SYS_rt_sigtimedwait, "sigtimedwait", false},
    {SYS_semop, "semop", false}, {SYS_semtimedop, "semtimedop", false},
    {SYS_msgrcv, "msgrcv", false}, {SYS_msgsnd, "msgsnd", false},
    {SYS_munmap, "munmap", false}, {SYS_mmap, "mmap", false},
    {SYS_mremap, "mremap", false}, {SYS_madvise, "madvise", false},
    {SYS_mprotect, "mprotect", false}, {SYS_brk, "brk", false},
    {SYS_openat, "openat", false}, {SYS_open, "open", false},
    {SYS_vfork, "vfork", false}, {SYS_clone, "clone", false},
    {SYS_membarrier, "membarrier", false},
    {SYS_futex, "futex", false}, {SYS_futex_waitv, "futex_waitv", false},
};

static void descriptor_text(const struct remote *r, int fd, char *text,
                            size_t room)
{
    char path[48], target[160];
    ssize_t got;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)r->task, fd);
    got = readlink(path, target, sizeof(target) - 1);
    target[got > 0 ? got : 0] = 0;
    snprintf(text, room, " of descriptor %d%s%s%s", fd, got > 0 ? " (" : "",
             target, got > 0 ? ")" : "");
}

void remote_call_text(const struct remote *r, const struct remote_thread *t,
                      char *text, size_t room)
{
    const struct call *call = NULL;
    char what[200] = "";

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (calls[i].nr == t->call.nr)
            call = &calls[i];
    if (call && call->fd)
        descriptor_text(r, (int)t->call.args[0], what, sizeof(what));
    if (call)
        snprintf(text, room, "%s%s", call->name, what);
    else
        snprintf(text, room, "system call %ld%s%s%s", t->call.nr,
                 t->wchan[0] ? " (" : "", t->wchan, t->wchan[0] ? ")" : "");
}
