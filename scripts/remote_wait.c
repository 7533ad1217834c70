/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a thread waits for. The kernel says which word of memory; whose lock
 * that is, the word and its neighbours tell, as the C library and this one
 * lay them out (glibc 2.36, x86-64). A look, not a promise: what was no longer
 * so when the memory was read, is told as it was then.
 */
#include <inttypes.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>

#include "remote.h"
#include "symbols.h"

#define HEAP_MAX ((uint64_t)64 << 20) /* of an arena, aligned so */
#define THREAD_SIZE 0x900             /* struct pthread, about */

static struct remote_thread *live(struct remote *r, uint32_t tid)
{
    return tid && tid <= INT32_MAX ? remote_find(r, (pid_t)tid) : NULL;
}

/* Thread pointers are known of threads that were taken. */
static struct remote_thread *by_pointer(struct remote *r, uint64_t pointer)
{
    if (!pointer)
        return NULL;
    for (size_t i = 0; i < r->threads; i++) {
        remote_take(r, &r->thread[i]);
        if (r->thread[i].pointer == pointer)
            return &r->thread[i];
    }
    return NULL;
}

static void name_address(const struct remote *r, uint64_t at, char *text,
                         size_t room)
{
    const struct remote_module *m = remote_module_at(r, at);
    const char *base, *symbol = NULL;
    uint64_t offset = 0;

    if (!m) {
        snprintf(text, room, "0x%" PRIx64, at);
        return;
    }
    base = strrchr(m->name, '/');
    base = base ? base + 1 : m->name;
    if (m->elf)
        symbol = symbols_find_data(m->file, at - m->bias, &offset);
    if (symbol)
        snprintf(text, room, "%s+0x%" PRIx64 " in %s", symbol, offset, base);
    else
        snprintf(text, room, "%s+0x%" PRIx64, base, at - m->bias);
}

/* "a mutex at ADDRESS, held by thread N" */
static void found(const struct remote *r, struct remote_wait *w,
                  enum remote_wait_kind kind, const char *what, pid_t holder)
{
    char where[150], held[32] = "";

    name_address(r, w->address, where, sizeof(where));
    w->kind = kind;
    w->holder = holder;
    if (holder)
        snprintf(held, sizeof(held), ", held by thread %d", (int)holder);
    snprintf(w->text, sizeof(w->text), "%s at %s%s", what, where, held);
}

/* The locks of shim/lock.h: the word is the owner's thread pointer; and the
 * turn of shim/drain.c, which comes behind the pointer of whose it is. */
static bool of_lapse(struct remote *r, struct remote_thread *t,
                     struct remote_wait *w)
{
    struct remote_thread *other;
    uint64_t words[2] = {0};

    if (!remote_is_lapse(remote_module_at(r, w->address)))
        return false;
    remote_read(r, w->address - 8, words, sizeof(words));
    if ((other = by_pointer(r, words[1]))) {
        found(r, w, WAITS_LAPSE_LOCK, "a lock of the library", other->tid);
    } else if ((other = by_pointer(r, words[0])) && other != t) {
        w->kind = WAITS_LAPSE_TURN;
        w->holder = other->tid;
        snprintf(w->text, sizeof(w->text),
                 "the end of the callbacks that thread %d makes",
                 (int)other->tid);
    } else {
        found(r, w, WAITS_LAPSE, "the library's", 0);
        snprintf(w->text, sizeof(w->text), "work (it is idle)");
    }
    return true;
}

/* The first word of an arena, which its heaps point to. */
static bool is_arena(const struct remote *r, uint64_t at)
{
    const struct remote_module *m = remote_module_at(r, at);
    const char *symbol;
    uint64_t offset, arena = 0;

    if (!m)
        return remote_read(r, at & ~(HEAP_MAX - 1), &arena, sizeof(arena)) &&
               arena == at;
    symbol = remote_is_libc(m) && m->elf
                 ? symbols_find_data(m->file, at - m->bias, &offset)
                 : NULL;
    return symbol && !offset && !strcmp(symbol, "main_arena");
}

static bool in_allocator(const struct remote_thread *t)
{
    for (size_t i = 0; i < t->places; i++)
        if (t->place[i].kind == IN_ALLOCATOR)
            return true;
    return false;
}

/* The lock does not say whose it is. Who is in malloc or free and does not
 * wait for that word, may be it, if there is one such thread only. */
static void of_arena(struct remote *r, struct remote_thread *t,
                     struct remote_wait *w)
{
    struct remote_thread *only = NULL;
    unsigned n = 0;

    for (size_t i = 0; i < r->threads; i++) {
        struct remote_thread *other = &r->thread[i];

        remote_take(r, other);
        if (other == t || !in_allocator(other) ||
            (other->call.nr == SYS_futex &&
             other->call.args[0] == w->address))
            continue;
        only = other;
        n++;
    }
    found(r, w, WAITS_ARENA, "malloc's lock of an arena", 0);
    if (n != 1)
        return;
    w->holder = only->tid;
    w->perhaps = true;
    snprintf(w->text + strlen(w->text), sizeof(w->text) - strlen(w->text),
             ", held perhaps by thread %d", (int)only->tid);
}

/* pthread_join: the word is within the other's own structure. */
static bool of_end(struct remote *r, struct remote_wait *w, uint32_t word)
{
    struct remote_thread *other = live(r, word);

    if (!other)
        return false;
    remote_take(r, other);
    if (!other->pointer || w->address - other->pointer >= THREAD_SIZE)
        return false;
    w->kind = WAITS_THREAD_END;
    w->holder = other->tid;
    snprintf(w->text, sizeof(w->text), "the end of thread %d",
             (int)other->tid);
    return true;
}

/* pthread_mutex_t: lock, count, owner, users, kind. */
static bool of_mutex(struct remote *r, struct remote_wait *w)
{
    uint32_t m[5] = {0};
    struct remote_thread *owner;

    if (!remote_read(r, w->address, m, sizeof(m)) || !m[0] || m[4] > 0x3ff)
        return false;
    owner = live(r, m[2]);
    /* robust, or with priority inheritance: the word itself */
    if (!owner && (m[4] & 0x30) && (m[0] & FUTEX_TID_MASK) == m[2])
        owner = live(r, m[0] & FUTEX_TID_MASK);
    if (owner)
        found(r, w, WAITS_MUTEX, "a mutex", owner->tid);
    return owner != NULL;
}

/* pthread_rwlock_t: the writer's number is the seventh word; readers wait for
 * the third, writers for the fourth. */
static pid_t writer_of(struct remote *r, uint64_t at)
{
    uint32_t words[2] = {0};
    struct remote_thread *writer;

    if (!remote_read(r, at + 12, words, sizeof(words)))
        return 0;
    writer = live(r, words[0]);
    writer = writer ? writer : live(r, words[1]);
    return writer ? writer->tid : 0;
}

/* What libc's functions on top of the stack are about. */
static bool of_function(struct remote *r, const struct remote_thread *t,
                        struct remote_wait *w)
{
    static const struct {
        const char *part;
        enum remote_wait_kind kind;
        const char *what;
    } rows[] = {
        {"pthread_cond_", WAITS_CONDITION, "a condition variable"},
        {"pthread_rwlock_", WAITS_RWLOCK, "a read-write lock"},
        {"pthread_barrier_", WAITS_BARRIER, "a barrier"},
        {"sem_", WAITS_SEMAPHORE, "a semaphore"},
        {"new_sem_", WAITS_SEMAPHORE, "a semaphore"},
        {"pthread_mutex_", WAITS_MUTEX, "a mutex"},
    };

    for (size_t f = 0; f < t->frames && f < 6; f++) {
        const char *name = t->frame[f].symbol;

        if (!name || !remote_is_libc(t->frame[f].module))
            continue;
        name += strspn(name, "_");
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
            if (!strncmp(name, rows[i].part, strlen(rows[i].part))) {
                found(r, w, rows[i].kind, rows[i].what,
                      rows[i].kind == WAITS_RWLOCK ? writer_of(r, w->address)
                                                   : 0);
                return true;
            }
    }
    return false;
}

static void of_futex(struct remote *r, struct remote_thread *t,
                     struct remote_wait *w)
{
    uint32_t word = 0;

    w->address = t->call.args[0];
    remote_read(r, w->address, &word, sizeof(word));
    if (of_lapse(r, t, w))
        return;
    if (is_arena(r, w->address))
        of_arena(r, t, w);
    else if (!of_end(r, w, word) && !of_mutex(r, w) && !of_function(r, t, w))
        found(r, w, WAITS_FUTEX, "a futex", 0);
}

static bool is_waiting(const struct remote_call *call)
{
    int op = (int)call->args[1] & FUTEX_CMD_MASK;

    return call->nr == SYS_futex &&
           (op == FUTEX_WAIT || op == FUTEX_WAIT_BITSET ||
            op == FUTEX_LOCK_PI || op == FUTEX_LOCK_PI2);
}

void remote_waits(struct remote *r, struct remote_thread *t)
{
    if (t->wait_known)
        return;
    t->wait_known = true;
    if (is_waiting(&t->call)) {
        of_futex(r, t, &t->wait);
    } else if (t->call.nr >= 0) {
        t->wait.kind = WAITS_IN_CALL;
        remote_call_text(r, t, t->wait.text, sizeof(t->wait.text));
    }
}

const char *remote_wait_name(enum remote_wait_kind kind)
{
    static const char *const names[REMOTE_WAITS] = {
        [WAITS_NOT] = "nothing",      [WAITS_IN_CALL] = "system call",
        [WAITS_FUTEX] = "futex",      [WAITS_MUTEX] = "mutex",
        [WAITS_RWLOCK] = "rwlock",    [WAITS_CONDITION] = "condition",
        [WAITS_SEMAPHORE] = "semaphore", [WAITS_BARRIER] = "barrier",
        [WAITS_THREAD_END] = "thread end", [WAITS_ARENA] = "arena",
        [WAITS_LAPSE_LOCK] = "lapse lock", [WAITS_LAPSE_TURN] = "lapse turn",
        [WAITS_LAPSE] = "lapse work",
    };

    return names[kind];
}
