/* SPDX-License-Identifier: BSD-3-Clause */
/* Stops a thread of another process, reads its stack, and lets it go. */
#include <errno.h>
#include <libunwind-ptrace.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

#include "remote.h"
#include "symbols.h"

#define STOP_MS 2000

/* The page that was read last, while the thread stands: of its stack, mostly. */
static struct {
    const struct remote *r;
    uint64_t page; /* 0: none */
    unsigned char bytes[4096];
} seen;

static int read_word(unw_addr_space_t space, unw_word_t at, unw_word_t *value,
                     int write, void *arg)
{
    uint64_t page = at & ~(uint64_t)4095;

    (void)space;
    (void)arg;
    if (write)
        return -UNW_EREADONLYREG;
    if ((at & 4095) > 4096 - sizeof(*value))
        return remote_read(seen.r, at, value, sizeof(*value)) ? 0
                                                              : -UNW_EINVAL;
    if (page != seen.page) {
        seen.page = 0;
        if (!remote_read(seen.r, page, seen.bytes, sizeof(seen.bytes)))
            return -UNW_EINVAL;
        seen.page = page;
    }
    memcpy(value, seen.bytes + (at & 4095), sizeof(*value));
    return 0;
}

static unw_accessors_t accessors = {
    .find_proc_info = _UPT_find_proc_info,
    .put_unwind_info = _UPT_put_unwind_info,
    .get_dyn_info_list_addr = _UPT_get_dyn_info_list_addr,
    .access_mem = read_word,
    .access_reg = _UPT_access_reg,
    .access_fpreg = _UPT_access_fpreg,
    .resume = _UPT_resume,
    .get_proc_name = _UPT_get_proc_name,
};

/* back: pc is a return address, so the call is before it. */
static void name_frame(const struct remote *r, struct remote_frame *f,
                       bool back)
{
    f->module = remote_module_at(r, f->pc);
    if (!f->module)
        return;
    f->offset = f->pc - f->module->bias;
    if (f->module->elf)
        f->symbol = symbols_find(f->module->file, f->offset - back);
}

void remote_unwind(struct remote *r, struct remote_thread *t)
{
    unw_addr_space_t space = unw_create_addr_space(&accessors, 0);
    void *state = _UPT_create(t->tid);
    bool back = false;
    unw_cursor_t cursor;
    unw_word_t pc;
    int more = 0;

    seen.r = r;
    seen.page = 0;
    t->frame = calloc(REMOTE_FRAMES, sizeof(*t->frame));
    if (space && state && t->frame &&
        !unw_init_remote(&cursor, space, state))
        do {
            if (unw_get_reg(&cursor, UNW_REG_IP, &pc) || !pc)
                break;
            t->frame[t->frames].pc = pc;
            name_frame(r, &t->frame[t->frames++], back);
            back = unw_is_signal_frame(&cursor) <= 0;
            more = unw_step(&cursor);
        } while (more > 0 && t->frames < REMOTE_FRAMES);
    t->whole = t->frames && more == 0;
    if (state)
        _UPT_destroy(state);
    if (space)
        unw_destroy_addr_space(space);
}

/* False: it does not stop, as it is deep in the kernel. *signal: what it was
 * about to get when it stopped. */
static bool await_stop(pid_t tid, int *signal)
{
    struct timespec pause = {.tv_nsec = 20000};
    int status;

    *signal = 0;
    for (uint64_t waited = 0; waited < STOP_MS * 1000000ull;
         waited += (uint64_t)pause.tv_nsec) {
        pid_t got = waitpid(tid, &status, __WALL | WNOHANG);

        if (got == tid && WIFSTOPPED(status)) {
            /* An event is none that the thread could be owed. */
            *signal = status >> 16 ? 0 : WSTOPSIG(status);
            return true;
        }
        if (got)
            return false;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 5000000)
            pause.tv_nsec *= 2;
    }
    return false;
}

void remote_take(struct remote *r, struct remote_thread *t)
{
    struct user_regs_struct regs;
    int signal;

    if (t->taken || t->trouble)
        return;
    if (t->state == 'Z' || t->state == 'X') {
        t->trouble = "it has ended";
        return;
    }
    if (ptrace(PTRACE_SEIZE, t->tid, NULL, NULL)) {
        t->error = errno;
        t->trouble = errno == ESRCH ? "it has ended" : "it may not be traced";
        return;
    }
    /* Not stopped, it cannot be let go either: our end does that. */
    if (ptrace(PTRACE_INTERRUPT, t->tid, NULL, NULL) ||
        !await_stop(t->tid, &signal)) {
        t->trouble = "it does not stop: it is in the kernel";
        return;
    }
    if (!ptrace(PTRACE_GETREGS, t->tid, NULL, &regs))
        t->pointer = regs.fs_base;
    remote_unwind(r, t);
    ptrace(PTRACE_DETACH, t->tid, NULL, (void *)(intptr_t)signal);
    t->taken = true;
    remote_places(r, t);
}
