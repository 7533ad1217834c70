/* SPDX-License-Identifier: BSD-3-Clause */
#include "hooks/backstop_hold.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>

#include "shim/release.h"
#include "shim/sys.h"

#define HELD_MAX 64
#define SUSPECTS_MAX 32
#define HOLD_NS 100000000u
/* The clock of a thread's time in user mode; it goes on when a tick of the
 * kernel's meets the thread there, and only then. */
#define USER_CLOCK(tid) (((long)~(int)(tid) << 3) | 4 | 1)

struct thread {
    uint32_t tid;
    uint64_t user; /* its time in user mode */
};

/* Threads that are, or were, busy. */
struct threads {
    unsigned count;
    bool partly; /* there may be more */
    struct thread one[SUSPECTS_MAX];
};

static struct held {
    struct release release;
    bool used;
    bool fresh;     /* suspects are to be found */
    uint64_t until; /* not before, if suspects.partly */
    struct threads suspects;
} held[HELD_MAX];

static uint64_t read_clock(long clock)
{
    struct timespec t = {0};

    sys(SYS_clock_gettime, clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static long open_task(void)
{
    return sys(SYS_openat, AT_FDCWD, "/proc/self/task",
               O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* From "TID (name) STATE ..."; the name may hold anything. 0: no thread. */
static char read_state(long task, uint32_t tid)
{
    char path[24] = "", text[512];
    unsigned at = sizeof(path) - sizeof("/stat");
    long fd, n, i;

    for (unsigned k = 0; k < sizeof("/stat"); k++)
        path[at + k] = "/stat"[k];
    for (; tid; tid /= 10)
        path[--at] = (char)('0' + tid % 10);
    fd = sys(SYS_openat, task, path + at, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    n = sys(SYS_read, fd, text, sizeof(text));
    sys(SYS_close, fd);
    for (i = n - 1; i > 0 && text[i] != ')'; i--)
        ;
    return i > 0 && i + 2 < n ? text[i + 2] : 0;
}

static bool is_busy(char state)
{
    return state == 'R' || state == 'D';
}

static void take_thread(struct threads *busy, long task, uint32_t tid)
{
    struct thread one = {.tid = tid, .user = read_clock(USER_CLOCK(tid))};

    if (!is_busy(read_state(task, tid)))
        return;
    if (busy->count == SUSPECTS_MAX)
        busy->partly = true;
    else
        busy->one[busy->count++] = one;
}

static uint32_t number(const char *name)
{
    uint32_t n = 0;

    for (; *name >= '0' && *name <= '9'; name++)
        n = n * 10 + (uint32_t)(*name - '0');
    return n; /* 0: "." and ".." */
}

/* Who is busy now, but for the reader. */
static void find_busy(struct threads *busy)
{
    struct entry {
        uint64_t inode, offset;
        uint16_t size;
        uint8_t type;
        char name[];
    } *e;
    char list[2048] __attribute__((aligned(8)));
    long task = open_task(), n, self = sys(SYS_gettid);

    busy->count = 0;
    busy->partly = task < 0;
    while (task >= 0 &&
           (n = sys(SYS_getdents64, task, list, sizeof(list))) > 0)
        for (long i = 0; i < n; i += e->size) {
            uint32_t tid;

            e = (struct entry *)(list + i);
            tid = number(e->name);
            if (tid && tid != self)
                take_thread(busy, task, tid);
        }
    if (task >= 0)
        sys(SYS_close, task);
}

/* Is it in the same stretch of work? If not all are known, it may be. */
static bool is_still(const struct thread *was, const struct threads *busy)
{
    for (unsigned i = 0; i < busy->count; i++)
        if (busy->one[i].tid == was->tid)
            return busy->one[i].user == was->user;
    return busy->partly;
}

/* Takes those off who are out; true when nobody is left. */
static bool is_over(struct held *h, const struct threads *busy)
{
    struct threads *s = &h->suspects;

    for (unsigned i = 0; i < s->count;)
        if (is_still(&s->one[i], busy))
            i++;
        else
            s->one[i] = s->one[--s->count];
    return s->partly ? read_clock(CLOCK_MONOTONIC) > h->until : !s->count;
}

static void begin(struct release *r, uintptr_t start, uintptr_t end)
{
    release_begin(r, start, end, LAPSE_REASON_MADVISE);
    release_count(r, LAPSE_PATH_BACKSTOP, end - start, 1, INSIDE_NOTHING);
}

/* One more than there is room for: as long as the last of the others is held,
 * who watches is told OVERFLOW. Whom that one waited for is busy still, or
 * out. */
static void crowd(struct held *h, uintptr_t start, uintptr_t end)
{
    uint64_t live = atomic_load_explicit(&lapse_live, memory_order_relaxed);
    struct release r;

    begin(&r, start, end);
    if (h->release.slot)
        /* seq_cst B1, as in release.c: before OVERFLOW */
        atomic_fetch_or_explicit(&h->release.slot->blind, live,
                                 memory_order_seq_cst);
    release_overflow(live);
    h->fresh = true;
    release_end(&r);
}

void hold_begin(uintptr_t start, uintptr_t end)
{
    struct held *h = held;

    while (h < &held[HELD_MAX - 1] && h->used)
        h++;
    if (h->used) {
        crowd(h, start, end);
        return;
    }
    begin(&h->release, start, end);
    release_leave(&h->release); /* others end in any order */
    h->used = h->fresh = true;
}

static void look_at(struct held *h, const struct threads *busy)
{
    if (h->fresh) {
        h->suspects = *busy;
        h->until = read_clock(CLOCK_MONOTONIC) + HOLD_NS;
        h->fresh = false;
    } else if (is_over(h, busy)) {
        h->used = false;
        h->release.outside = lapse_hint.depth++;
        release_end(&h->release);
    }
}

bool hold_round(bool now)
{
    static uint64_t last;
    static struct threads busy;
    uint64_t time;
    unsigned used = 0;

    for (unsigned i = 0; i < HELD_MAX; i++)
        used += held[i].used;
    if (!used)
        return false;
    time = read_clock(CLOCK_MONOTONIC);
    if (!now && time - last < HOLD_TICK_NS)
        return true;
    last = time;
    find_busy(&busy);
    for (unsigned i = 0; i < HELD_MAX; i++)
        if (held[i].used)
            look_at(&held[i], &busy);
    return true; /* at least for another look */
}

void hold_fork_child(void)
{
    for (unsigned i = 0; i < HELD_MAX; i++)
        held[i].used = false;
}
