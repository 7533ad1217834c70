/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Another process, looked at from outside while it runs or hangs: its modules,
 * its threads, where each of them is and what it waits for. A thread is
 * stopped for as long as its stack is read, and no two at once. The kernel
 * lets it go on when this process is killed meanwhile.
 */
#ifndef REMOTE_H
#define REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct remote_module {
    struct remote_module *next;
    uint64_t start, end; /* in memory, all segments */
    uint64_t bias;       /* from its file's addresses to those in memory */
    bool elf;            /* read as such; else bias stands for file offsets */
    char *file;          /* by which it can be opened here */
    char name[];         /* as the process has it */
};

struct remote_frame {
    uint64_t pc;
    const struct remote_module *module; /* NULL: of no file */
    uint64_t offset;                    /* in the file's addresses */
    const char *symbol;                 /* NULL: not known */
};
enum { REMOTE_FRAMES = 512 };

/* Whose code a thread is in. */
enum remote_kind {
    IN_HOOK,
    IN_INLINE, /* an INLINE handler, within a hook */
    IN_DRAINER,
    IN_CALLBACK,
    IN_POLL,
    IN_SYNC,
    IN_WATCH,
    IN_LIBRARY, /* another function of the library */
    IN_ALLOCATOR,
    IN_LOADER,
    REMOTE_KINDS
};
struct remote_place {
    enum remote_kind kind;
    const char *function; /* NULL: not known */
    int subscriber;       /* of a callback; -1: not known */
};
enum { REMOTE_PLACES = 12 };

enum remote_wait_kind {
    WAITS_NOT,
    WAITS_IN_CALL,    /* of the kernel, which is not about a lock */
    WAITS_FUTEX,      /* not known what it is */
    WAITS_MUTEX,
    WAITS_RWLOCK,
    WAITS_CONDITION,
    WAITS_SEMAPHORE,
    WAITS_BARRIER,
    WAITS_THREAD_END,
    WAITS_ARENA,      /* malloc's lock */
    WAITS_LAPSE_LOCK, /* of the library's own */
    WAITS_LAPSE_TURN, /* until another thread's callbacks are over */
    WAITS_LAPSE,      /* for work: one of the library's threads */
    REMOTE_WAITS
};
struct remote_wait {
    enum remote_wait_kind kind;
    uint64_t address; /* of the futex; 0: none */
    pid_t holder;     /* 0: not known */
    bool perhaps;     /* the holder was guessed */
    char text[240];   /* for people, after "waits for"; or the call it is in */
};

struct remote_call {
    long nr; /* -1: in none, or not known */
    uint64_t args[6];
};

struct remote_thread {
    pid_t tid;
    char name[17];
    char state; /* as in ps(1) */
    char wchan[48];
    struct remote_call call;
    bool taken;          /* its stack was read */
    const char *trouble; /* why not; NULL: not tried */
    int error;           /* that ptrace gave, 0: another reason */
    uint64_t pointer;    /* its thread pointer */
    struct remote_frame *frame;
    size_t frames;
    bool whole; /* down to where it began */
    struct remote_place place[REMOTE_PLACES]; /* outermost first */
    size_t places;
    bool wait_known; /* the look at what it waits for is done */
    struct remote_wait wait;
};

struct remote {
    pid_t pid;
    pid_t task; /* a thread that lives: its maps and memory are there */
    char name[17];
    int memory; /* /proc/PID/mem, or -1 */
    struct remote_module *modules;
    struct remote_thread *thread;
    size_t threads;
};

/* 0 or an errno; said. The process need not have the library in it. */
int remote_open(struct remote *r, pid_t pid);
void remote_close(struct remote *r);
struct remote_thread *remote_find(struct remote *r, pid_t tid);
bool remote_read(const struct remote *r, uint64_t address, void *to,
                 size_t size);

/* remote_maps.c */
void remote_maps_read(struct remote *r);
const struct remote_module *remote_module_at(const struct remote *r,
                                             uint64_t address);
bool remote_is(const struct remote_module *m, const char *const *names);
bool remote_is_lapse(const struct remote_module *m);
bool remote_is_libc(const struct remote_module *m);
bool remote_is_loader(const struct remote_module *m);
bool remote_is_allocator(const struct remote_module *m);

/* remote_stop.c: stops the thread, reads registers and stack, lets it go. */
void remote_take(struct remote *r, struct remote_thread *t);
void remote_unwind(struct remote *r, struct remote_thread *t);

/* remote_place.c: of a thread that was taken. */
void remote_places(struct remote *r, struct remote_thread *t);
const char *remote_kind_name(enum remote_kind kind);

/* remote_wait.c: takes more threads where it must, to learn who holds what. */
void remote_waits(struct remote *r, struct remote_thread *t);
const char *remote_wait_name(enum remote_wait_kind kind);
/* remote_call.c: a call that waits, and for what. */
void remote_call_text(const struct remote *r, const struct remote_thread *t,
                      char *text, size_t room);

#endif
