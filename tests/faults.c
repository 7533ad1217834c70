/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fault injection: runs a program under the library once for every system call
 * that the library makes for itself in it, and lets that one fail; and once
 * more for each kind of call, where all of them fail. The program
 * must go on to the same output and exit status, and stderr may have one line,
 * of the library. ptrace tells which calls are the library's own: those that
 * come from its text, but for the call that a hook makes on behalf of the
 * program, and the making of its threads.
 * Usage: faults LIBRARY COMMAND...    (COMMAND counts on descriptor 9)
 * FAULTS_ERRNO=N: they all fail so, and not each in a way of its own.
 * Exit status 77: no ptrace here.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CALLS 512
#define THREADS 64
#define LIMIT 120 /* seconds for one run: then it hangs */

static const char *library;
static char **command;
static struct {
    uint8_t *file;
    const Elf64_Sym *symbol;
    size_t symbols;
    const char *strings;
} image;

/* One run. */
static struct {
    uintptr_t text, text_end, offset; /* of the library, 0 = not there yet */
    int nr, occurrence; /* what is to fail; -1: none such, and every one */
    int seen[CALLS];
    bool failed; /* it did fail */
    const char *where;
} run;

static struct {
    pid_t pid;
    bool inside, inject;
} thread[THREADS];

struct result {
    int status; /* of waitpid, -1 = it hung */
    char out[4096], err[4096], counts[256];
};

static void read_symbols(void)
{
    int fd = open(library, O_RDONLY);
    struct stat st;
    const Elf64_Ehdr *head;
    const Elf64_Shdr *section;

    if (fd < 0 || fstat(fd, &st))
        exit(2);
    image.file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    head = (const Elf64_Ehdr *)image.file;
    section = (const Elf64_Shdr *)(image.file + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) {
        if (section[i].sh_type != SHT_SYMTAB)
            continue;
        image.symbol = (const Elf64_Sym *)(image.file + section[i].sh_offset);
        image.symbols = section[i].sh_size / sizeof(Elf64_Sym);
        image.strings =
            (char *)image.file + section[section[i].sh_link].sh_offset;
    }
    close(fd);
    if (!image.symbols) {
        printf("faults: %s has no symbols\n", library);
        exit(2);
    }
}

static const char *function_at(uintptr_t vaddr)
{
    for (size_t i = 0; i < image.symbols; i++) {
        const Elf64_Sym *s = &image.symbol[i];

        if (ELF64_ST_TYPE(s->st_info) == STT_FUNC &&
            vaddr - s->st_value < s->st_size)
            return image.strings + s->st_name;
    }
    return "?";
}

static void find_text(pid_t pid)
{
    char path[64], line[512], flags[8], file[400];
    unsigned long start, end, offset;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %399s", &start, &end, flags,
                   &offset, file) == 5 &&
            flags[2] == 'x' && !strcmp(file, library)) {
            run.text = start;
            run.text_end = end;
            run.offset = offset;
        }
    if (f)
        fclose(f);
}

/* What a hook does for the program, which is not ours to fail. */
static bool for_program(const char *function, uint64_t nr)
{
    static const int calls[] = {
        SYS_munmap, SYS_mmap, SYS_mremap, SYS_brk, SYS_madvise, SYS_shmdt,
        SYS_shmat, SYS_process_madvise, SYS_remap_file_pages, SYS_fallocate,
        SYS_ftruncate, SYS_truncate, SYS_open, SYS_openat, SYS_creat,
        SYS_openat2};

    if (strncmp(function, "hook_", 5))
        return false;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if ((uint64_t)calls[i] == nr)
            return true;
    return false;
}

/* clone3 has its flags in memory. */
static bool makes_thread(pid_t pid, const struct __ptrace_syscall_info *info)
{
    uint64_t flags = info->entry.args[0];

    if (info->entry.nr == SYS_clone3)
        flags = (uint64_t)ptrace(PTRACE_PEEKDATA, pid, info->entry.args[0], 0);
    else if (info->entry.nr != SYS_clone)
        return false;
    return (flags & CLONE_THREAD) != 0;
}

/* Is this call the library's own, and if so is it the one to fail? */
static bool is_to_fail(pid_t pid, const struct __ptrace_syscall_info *info)
{
    uint64_t nr = info->entry.nr;
    uintptr_t ip = info->instruction_pointer;

    if (nr >= CALLS)
        return false;
    if (!run.text)
        find_text(pid);
    if (!run.text)
        return false;
    if (ip - run.text < run.text_end - run.text) {
        run.where = function_at(ip - 2 - run.text + run.offset);
        if (for_program(run.where, nr))
            return false;
    } else if (makes_thread(pid, info)) {
        run.where = "pthread_create";
    } else {
        return false;
    }
    if (getenv("FAULTS_SHOW") && run.nr < 0)
        printf("  %d in %s\n", (int)nr, run.where);
    run.seen[nr]++;
    return (int)nr == run.nr &&
           (run.occurrence < 0 || run.seen[nr] == run.occurrence + 1);
}

static long error_of(int nr)
{
    const char *asked = getenv("FAULTS_ERRNO");

    if (asked)
        return atoi(asked);
    switch (nr) {
    case SYS_mmap:
    case SYS_mremap:
        return ENOMEM;
    case SYS_mprotect:
    case SYS_open:
    case SYS_openat:
        return EACCES;
    case SYS_pwrite64:
    case SYS_close:
        return EIO;
    case SYS_clone:
    case SYS_clone3:
        return EAGAIN;
    case SYS_eventfd2:
        return EMFILE;
    case SYS_futex:
        return ENOSYS;
    }
    return EPERM;
}

static int slot_of(pid_t pid)
{
    int none = 0;

    for (int i = 0; i < THREADS; i++) {
        if (thread[i].pid == pid)
            return i;
        if (!thread[i].pid)
            none = i;
    }
    thread[none].pid = pid;
    thread[none].inside = thread[none].inject = false;
    return none;
}

static void at_call(pid_t pid)
{
    struct __ptrace_syscall_info info;
    struct user_regs_struct regs;
    int i = slot_of(pid);

    if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) <= 0)
        return;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY && is_to_fail(pid, &info)) {
        thread[i].inject = true;
        ptrace(PTRACE_GETREGS, pid, 0, &regs);
        regs.orig_rax = (unsigned long long)-1;
        ptrace(PTRACE_SETREGS, pid, 0, &regs);
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && thread[i].inject) {
        thread[i].inject = false;
        run.failed = true;
        ptrace(PTRACE_GETREGS, pid, 0, &regs);
        regs.rax = (unsigned long long)-error_of(run.nr);
        ptrace(PTRACE_SETREGS, pid, 0, &regs);
    }
}

/* Returns the wait status of the first process. */
static int trace(pid_t first)
{
    time_t end = time(NULL) + LIMIT;
    int status, result = -1;
    pid_t pid;

    while ((pid = waitpid(-1, &status, __WALL | WNOHANG)) >= 0) {
        int signal = 0;

        if (pid == 0) {
            if (time(NULL) > end) {
                kill(first, SIGKILL);
                end += LIMIT;
                result = -2;
            }
            usleep(50);
            continue;
        }
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            thread[slot_of(pid)].pid = 0;
            if (pid == first && result != -2)
                result = status;
            continue;
        }
        if (WSTOPSIG(status) == (SIGTRAP | 0x80))
            at_call(pid);
        else if (status >> 16 == 0 && WSTOPSIG(status) != SIGSTOP)
            signal = WSTOPSIG(status);
        ptrace(PTRACE_SYSCALL, pid, 0, signal);
    }
    return result;
}

static void slurp(FILE *f, char *to, size_t size)
{
    rewind(f);
    to[fread(to, 1, size - 1, f)] = 0;
    fclose(f);
}

static struct result run_one(int nr, int occurrence)
{
    FILE *out = tmpfile(), *err = tmpfile(), *counts = tmpfile();
    struct result r;
    int status;
    pid_t pid;

    memset(&run, 0, sizeof run);
    memset(thread, 0, sizeof thread);
    run.nr = nr;
    run.occurrence = occurrence;
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        dup2(fileno(out), 1);
        dup2(fileno(err), 2);
        dup2(fileno(counts), 9);
        setenv("LD_PRELOAD", library, 1);
        if (ptrace(PTRACE_TRACEME, 0, 0, 0))
            _exit(77);
        raise(SIGSTOP);
        execv(command[0], command);
        _exit(126);
    }
    waitpid(pid, &status, __WALL);
    if (!WIFSTOPPED(status)) {
        printf("faults: no ptrace here\n");
        exit(77);
    }
    ptrace(PTRACE_SETOPTIONS, pid, 0,
           PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEEXEC |
               PTRACE_O_EXITKILL);
    ptrace(PTRACE_SYSCALL, pid, 0, 0);
    r.status = trace(pid);
    slurp(out, r.out, sizeof r.out);
    slurp(err, r.err, sizeof r.err);
    slurp(counts, r.counts, sizeof r.counts);
    return r;
}

/* At most one line, and that ours. */
static bool is_quiet(const char *err)
{
    const char *end = strchr(err, '\n');

    return !*err || (!strncmp(err, "lapse[", 6) && end && !end[1]);
}

int main(int argc, char **argv)
{
    struct result good, bad;
    int total[CALLS], calls = 0, pairs = 0, wrong = 0, lost = 0, said = 0;

    if (argc < 3)
        return 2;
    library = realpath(argv[1], NULL);
    command = argv + 2;
    if (!library)
        return 2;
    read_symbols();
    good = run_one(-1, -1);
    memcpy(total, run.seen, sizeof total);
    if (good.status || *good.err) {
        printf("faults: without a fault: wait status %#x\n%s%s", good.status,
               good.out, good.err);
        return 1;
    }
    for (int nr = 0; nr < CALLS; nr++) {
        calls += total[nr] != 0;
        for (int i = total[nr] ? -1 : 0; i < total[nr]; i++) {
            bad = run_one(nr, i);
            if (!run.failed)
                continue; /* one less this time */
            pairs++;
            lost += strcmp(bad.counts, good.counts) != 0;
            said += *bad.err != 0;
            if (bad.status == good.status && !strcmp(bad.out, good.out) &&
                is_quiet(bad.err))
                continue;
            wrong++;
            printf("FAILED  call %d, occurrence %d: wait status %#x\n"
                   "stdout: %sstderr: %s\n",
                   nr, i, bad.status, bad.out, bad.err);
        }
    }
    printf("faults: %d calls, %d pairs of call and occurrence (or every one) "
           "tried; in %d "
           "something was lost or refused, as told; %d warned; %d wrong\n",
           calls, pairs, lost, said, wrong);
    return wrong || !pairs;
}
