/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The API as a state machine: random calls of one thread, and a reference
 * model beside it. With one thread the model is exact: which events a poller
 * gets, in which order, when its queue collapses, what lapse_pending says;
 * how often an INLINE handler is called; a CALLBACK one, told by a thread, is
 * held to all that it must be told, and to nothing that it must not.
 * Usage: fuzz_api [STEPS [SEED]]; with clang, -DFUZZER -fsanitize=fuzzer makes
 * a libFuzzer target of it, whose input is the choices.
 */
#include "fuzz_model.h"

static lapse_handle stale;
static unsigned long step, total, forks, events;
static uint64_t seed, state;
static const uint8_t *input; /* of a fuzzer */
static size_t input_left;
static bool in_child;

static void fail(const char *what, long got, long wanted)
{
    printf("FAILED %s: %ld, not %ld, at step %lu, seed %lu%s\n", what, got,
           wanted, step, (unsigned long)seed, in_child ? ", in a child" : "");
    fflush(stdout);
    if (in_child)
        _exit(1);
    abort();
}
#define SAME(what, got, wanted)                                               \
    do {                                                                      \
        long got_ = (long)(got), wanted_ = (long)(wanted);                    \
        if (got_ != wanted_)                                                  \
            fail(what, got_, wanted_);                                        \
    } while (0)

static unsigned pick(unsigned n)
{
    unsigned x = 0;

    if (!input)
        return (unsigned)(random_next(&state) >> 33) % n;
    for (int i = 0; i < 2 && input_left; i++, input_left--)
        x = x << 8 | *input++;
    return x % n;
}

static void pick_range(unsigned *page, unsigned *n)
{
    *n = pick(50) ? 1 + pick(6) : 1 + pick(PAGES - 1);
    *page = pick(4) ? pick(PAGES) : BORDER - pick(4);
    if (*page + *n > PAGES)
        *n = PAGES - *page;
}

static void check_pending(struct sub *s)
{
    if (s->live && s->delivery == LAPSE_POLL)
        SAME("lapse_pending", lapse_pending(s->h),
             s->queue.n || s->flagged || s->held);
}

static void poll_one(struct sub *s, size_t n)
{
    struct lapse_event e[RECORDS + 2];
    int got = lapse_poll(s->h, e, n);
    size_t want = 0, told = 0;

    if (s->delivery != LAPSE_POLL) {
        SAME("lapse_poll of another kind", got, -EINVAL);
        return;
    }
    model_take(s);
    if (s->overflow == DUE) {
        SAME("OVERFLOW told", got > 0 && e[0].flags == LAPSE_EVENT_OVERFLOW &&
             e[0].len == SIZE_MAX, 1);
        s->overflow = TOLD;
        want++;
    }
    for (; want < n && told < s->backlog.n; want++, told++) {
        struct item *i = &s->backlog.item[told];

        if ((size_t)got <= want)
            fail("too few events", got, (long)s->backlog.n);
        SAME("addr", e[want].addr, i->addr);
        SAME("len", e[want].len, i->len);
        SAME("reason", e[want].reason, i->reason);
        SAME("flags", e[want].flags, 0);
    }
    SAME("lapse_poll", got, want);
    events += want;
    memmove(s->backlog.item, s->backlog.item + told,
            (s->backlog.n - told) * sizeof *s->backlog.item);
    s->backlog.n -= told;
    if (want < n) {
        s->overflow = NONE;
        if (!s->backlog.n)
            s->held = false;
    }
}

/* --- what is called back --- */

static void on_event(const struct lapse_event *e, void *arg)
{
    struct sub *s = arg;
    uintptr_t base = (uintptr_t)arena;

    if (s->delivery == LAPSE_INLINE) {
        s->calls++;
        return;
    }
    if (e->flags & LAPSE_EVENT_OVERFLOW) {
        s->told_all = true;
        return;
    }
    for (uintptr_t a = e->addr & ~(PAGE - 1); a < e->addr + e->len; a += PAGE) {
        if (a < base || a >= base + PAGES * PAGE)
            continue; /* LAPSE_ALL: of somebody else */
        if (!s->may[(a - base) / PAGE])
            s->not_allowed = true;
        s->told[(a - base) / PAGE] = true;
    }
}

static void sync_one(struct sub *s)
{
    int err = lapse_sync(s->h);

    if (s->delivery == LAPSE_POLL) {
        SAME("lapse_sync", err, s->queue.n || s->flagged || s->held ? -EAGAIN
                                                                    : 0);
        return;
    }
    SAME("lapse_sync", err, 0);
    if (s->delivery == LAPSE_INLINE) {
        SAME("INLINE calls", s->calls, s->calls_due);
        return;
    }
    SAME("an event that was not due", s->not_allowed, 0);
    for (unsigned i = 0; i < PAGES; i++) {
        if (s->due[i] && !s->told[i] && !s->told_all)
            fail("told", 0, 1);
        s->due[i] = false;
        s->may[i] = false;
        s->told[i] = false;
    }
    s->told_all = false;
}

/* --- steps --- */

static void step_subscribe(struct sub *s, uint32_t delivery)
{
    struct lapse_subscription how = {.size = sizeof how,
                                     .delivery = delivery,
                                     .arg = s};

    memset(s, 0, sizeof *s);
    s->delivery = delivery;
    s->all = !input && pick(5) == 0; /* a fuzzer releases for itself */
    s->keep = pick(2);
    s->reasons = pick(3) ? LAPSE_MASK_ALL : 1 + pick(LAPSE_MASK_ALL - 1);
    s->reasons &= LAPSE_MASK_ALL;
    how.flags = (s->all ? LAPSE_ALL : 0) | (s->keep ? LAPSE_FORK_KEEP : 0);
    how.reasons = s->reasons;
    if (!s->reasons)
        s->reasons = LAPSE_MASK_ALL;
    if (delivery != LAPSE_POLL)
        how.callback = on_event;
    SAME("lapse_subscribe", lapse_subscribe(&how, &s->h), 0);
    s->live = true;
}

static void step_unsubscribe(struct sub *s)
{
    if (s == &subs[SUBS - 1])
        return;
    SAME("lapse_unsubscribe", lapse_unsubscribe(s->h), 0);
    stale = s->h;
    s->live = false;
    SAME("again", lapse_unsubscribe(stale), -ESTALE);
}

static void step_watch(struct sub *s)
{
    unsigned page, n;

    pick_range(&page, &n);
    SAME("lapse_watch", lapse_watch(s->h, arena + page * PAGE, n * PAGE), 0);
    for (unsigned i = page; i < page + n; i++)
        s->count[i]++;
}

static void step_unwatch(struct sub *s)
{
    unsigned page, n, least = 1;

    pick_range(&page, &n);
    for (unsigned i = page; i < page + n; i++)
        least = s->count[i] ? least : 0;
    SAME("lapse_unwatch", lapse_unwatch(s->h, arena + page * PAGE, n * PAGE),
         least ? 0 : -ENOENT);
    for (unsigned i = page; least && i < page + n; i++)
        s->count[i]--;
}

static void map_again(char *p, size_t len)
{
    need(mmap(p, len, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
              0) == p, "mmap");
}

/* Two ranges at once: the target first, then what moves there. */
static void step_move(char *p, size_t len)
{
    char *to = arena + (p - arena + (PAGES / 2) * PAGE) % (PAGES * PAGE);
    struct one target, old;

    if (to + len > arena + PAGES * PAGE || to < p + len)
        return;
    may_tell(to, len, LAPSE_REASON_REPLACE);
    may_tell(p, len, LAPSE_REASON_MREMAP);
    begin(&target, to, len, LAPSE_REASON_REPLACE);
    begin(&old, p, len, LAPSE_REASON_MREMAP);
    SAME("mremap", mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to) ==
         to, 1);
    end(&old);
    end(&target);
    map_again(p, len);
}

static void step_release(unsigned how)
{
    static const uint32_t reasons[] = {
        LAPSE_REASON_MUNMAP, LAPSE_REASON_MADVISE, LAPSE_REASON_REPLACE,
        LAPSE_REASON_USER};
    unsigned page, n, shift = pick(100);
    struct one r;
    size_t len;
    char *p;

    pick_range(&page, &n);
    p = arena + page * PAGE;
    len = n * PAGE;
    if (how == 4) {
        step_move(p, len);
        return;
    }
    if (how == 3) { /* lapse_publish: to the byte */
        p += shift;
        len -= shift + pick(100);
    }
    may_tell(p, len, reasons[how]);
    begin(&r, p, len, reasons[how]);
    switch (how) {
    case 0: SAME("munmap", munmap(p, len), 0); break;
    case 1: SAME("madvise", madvise(p, len, MADV_DONTNEED), 0); break;
    case 2:
        SAME("mmap", mmap(p, len, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p,
             1);
        break;
    case 3: SAME("lapse_publish", lapse_publish(p, len), 0); break;
    }
    end(&r);
    if (how == 0)
        map_again(p, len);
}

static void step_misuse(struct sub *s)
{
    struct lapse_event e;

    SAME("watch of nothing", lapse_watch(s->h, arena, 0), -EINVAL);
    SAME("watch of NULL", lapse_watch(s->h, NULL, PAGE), -EINVAL);
    SAME("no room", lapse_poll(s->h, &e, 0), -EINVAL);
    SAME("no handle", lapse_poll((lapse_handle){0}, &e, 1), -EBADF);
    if (stale.word) {
        SAME("stale", lapse_watch(stale, arena, PAGE), -ESTALE);
        SAME("stale", lapse_poll(stale, &e, 1), -ESTALE);
        SAME("stale", lapse_pending(stale), 1);
    }
}

/* The child has what was kept, and goes on by itself. */
static void step_fork(void)
{
    pid_t pid = fork();

    need(pid >= 0, "fork");
    if (pid == 0) {
        in_child = true;
        alarm(60);
        for (struct sub *s = subs; s < subs + SUBS; s++) {
            if (s->live && !s->keep) {
                SAME("dropped in the child", lapse_sync(s->h), -ESTALE);
                s->live = false;
            } else if (s->live && s->delivery == LAPSE_POLL) {
                model_take(s);
            } else if (s->live) {
                sync_one(s);
            }
        }
        for (unsigned i = 0; i < 3; i++) {
            step_release(pick(5));
            for (struct sub *s = subs; s < subs + SUBS; s++) {
                check_pending(s);
                if (s->live && s->delivery == LAPSE_POLL)
                    poll_one(s, RECORDS + 2);
            }
        }
        _exit(0);
    }
    SAME("the child", wait_for(pid, 60), 0);
    forks++;
}

static void one_step(void)
{
    struct sub *s = &subs[pick(SUBS)];
    unsigned what = pick(1000);

    if (!s->live) {
        step_subscribe(s, pick(3));
    } else if (what < 500) {
        step_release(what % 5);
    } else if (what < 650) {
        step_watch(s);
    } else if (what < 830) {
        step_unwatch(s);
    } else if (what < 970) {
        if (s->delivery == LAPSE_POLL)
            poll_one(s, pick(2) ? RECORDS + 2 : 1 + pick(8));
        else
            sync_one(s);
    } else if (what < 980) {
        sync_one(s);
    } else if (what < 985) {
        step_misuse(s);
    } else if (what < 987) {
        SAME("lapse_drain", lapse_drain(), 0);
    } else if (what < 999) {
        step_unsubscribe(s);
    } else if (pick(10) == 0) {
        step_fork();
    }
    if (s->live)
        check_pending(s);
}

static void prepare(void)
{
    size_t leaf = 2ul << 20, room = PAGES * PAGE + 2 * leaf;

    if (!arena) {
        char *p = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                       0);

        need(p != MAP_FAILED, "mmap");
        p += leaf; /* the border is a multiple of it */
        arena = p + (leaf - (uintptr_t)p % leaf) % leaf - BORDER * PAGE;
        need(mprotect(arena, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0,
             "mprotect");
    }
    if (!subs[SUBS - 1].live) /* so that the drainer never ends */
        step_subscribe(&subs[SUBS - 1], LAPSE_CALLBACK);
}

#ifdef FUZZER
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input = data;
    input_left = size;
    prepare();
    for (step = 0; input_left; step++)
        one_step();
    for (struct sub *s = subs; s < subs + SUBS; s++) /* each input alone */
        if (s->live) {
            SAME("at the end", lapse_unsubscribe(s->h), 0);
            s->live = false;
        }
    stale = (lapse_handle){0};
    return 0;
}
#else
int main(int argc, char **argv)
{
    uint64_t begun = now_ns();

    if (!getenv("LAPSE_RECORDS")) {
        setenv("LAPSE_RECORDS", "64", 1);
        execv("/proc/self/exe", argv);
    }
    total = argc > 1 ? strtoul(argv[1], NULL, 10) : 200000;
    seed = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    state = seed * 2654435761u + 1;
    prepare();
    for (step = 0; step < total; step++)
        one_step();
    check(true, "%lu steps, seed %lu: %lu releases, %lu events polled, "
          "%lu collapses, %lu forks, %.1f s", total, (unsigned long)seed,
          releases, events, overflows, forks,
          (double)(now_ns() - begun) / 1e9);
    return api_end();
}
#endif
