/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A reader of traces against writers at full speed, in another process: each
 * event is read once or counted as overwritten, none is torn. And against
 * SIGKILL: whatever moment it comes, the file can be read.
 * api_trace_read EVENTS | --kill TIMES | --write EVENTS
 */
#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "scripts/trace.h"
#include "shim/lapse.h"

enum { THREADS = 2, BODY = 200 };

/* What an event of a thread has is all known from its number. */
struct event {
    uint64_t number;
    uint32_t thread, length;
    uint8_t body[BODY];
};
#define HEAD offsetof(struct event, body)

static struct event event_make(uint32_t thread, uint64_t number)
{
    struct event e = {.number = number, .thread = thread};

    e.length = (uint32_t)(number * 7 % BODY);
    for (uint32_t i = 0; i < e.length; i++)
        e.body[i] = (uint8_t)(number * 13 + thread + i);
    return e;
}

static void fail(const char *what, uint64_t a, uint64_t b)
{
    printf("FAILED  %s: %" PRIu64 ", %" PRIu64 "\n", what, a, b);
    exit(1);
}

/* ---- the writer ---- */

static lapse_event_type type;
static uint64_t count; /* of a thread; 0: forever */

static size_t encode(void *buffer, size_t room, const void *what)
{
    const struct event *e = what;

    if (room >= HEAD + e->length)
        memcpy(buffer, e, HEAD + e->length);
    return HEAD + e->length;
}

static void *write_events(void *arg)
{
    uint32_t thread = (uint32_t)(uintptr_t)arg;

    for (uint64_t i = 0; !count || i < count; i++) {
        struct event e = event_make(thread, i);

        if (lapse_event_write(type, &e))
            abort();
        if (i % 1024 == 0)
            munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0), 4096);
    }
    return NULL;
}

static int writer(uint64_t events)
{
    pthread_t other[THREADS];

    count = events / THREADS;
    if (!lapse_tracing())
        return 3;
    if (lapse_event_register("counted", "n:u64 thread:u32 length:u32", encode,
                             &type))
        return 4;
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&other[i], NULL, write_events, (void *)i);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(other[i], NULL);
    return 0;
}

/* ---- the reader ---- */

static char dir[] = "/tmp/lapse-race.XXXXXX";
static const char *self;

static pid_t start(uint64_t events)
{
    char number[24];
    pid_t pid;

    snprintf(number, sizeof(number), "%" PRIu64, events);
    pid = fork();
    if (!pid) {
        setenv("LAPSE_TRACE", dir, 1);
        execl(self, self, "--write", number, (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* The file, once it is there; NULL: it is not, or not whole yet. */
static struct trace *try_open(pid_t pid)
{
    char path[64];
    const char *why;

    snprintf(path, sizeof(path), "%s/%d.0.trace", dir, (int)pid);
    return trace_open(path, &why);
}

static void clean(pid_t pid)
{
    char path[64];

    snprintf(path, sizeof(path), "%s/%d.0.trace", dir, (int)pid);
    unlink(path);
}

struct seen {
    uint64_t events, other;
    uint64_t next[TRACE_RINGS]; /* number of a ring's record to come */
    uint8_t *bits[THREADS];     /* numbers met, if they are to be met once */
};

static void check_event(struct seen *s, const struct trace_user *u)
{
    struct event got, must;

    if (u->len < HEAD || u->len > sizeof(got))
        fail("an event of that length", u->len, u->head.number);
    memcpy(&got, u + 1, u->len);
    if (got.thread >= THREADS)
        fail("an event of that thread", got.thread, u->head.number);
    must = event_make(got.thread, got.number);
    if (u->len != HEAD + must.length || memcmp(&got, &must, u->len))
        fail("a torn event", got.thread, got.number);
    s->events++;
    if (!s->bits[got.thread])
        return;
    if (got.number >= count)
        fail("no such event", got.thread, got.number);
    if (s->bits[got.thread][got.number / 8] >> got.number % 8 & 1)
        fail("an event read twice", got.thread, got.number);
    s->bits[got.thread][got.number / 8] |= (uint8_t)(1u << got.number % 8);
}

/* All that is there now. */
static void drain(struct trace *t, struct seen *s)
{
    const struct trace_record *r;
    unsigned ring;

    while ((r = trace_next(t, &ring))) {
        if (r->number < s->next[ring])
            fail("a number of a ring again", ring, r->number);
        s->next[ring] = r->number + 1;
        if (r->kind == TRACE_USER)
            check_event(s, (const void *)r);
        else
            s->other++;
    }
}

/* The numbers that the writers say they gave away. */
static uint64_t written(const struct trace *t, pid_t pid)
{
    const struct trace_header *h = trace_head(t);
    struct trace_head head;
    char path[64];
    uint64_t sum = 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%d.0.trace", dir, (int)pid);
    f = fopen(path, "r");
    if (!f || fseek(f, (long)h->heads_at, SEEK_SET))
        fail("the file", 0, 0);
    for (uint32_t i = 0; i < h->rings; i++) {
        if (fread(&head, sizeof(head), 1, f) != 1)
            fail("a ring head", i, 0);
        sum += head.next;
    }
    fclose(f);
    return sum;
}

static int race(uint64_t events)
{
    static struct seen s;
    struct trace *t = NULL;
    pid_t pid = start(events);
    int status = 0;
    bool over = false;

    count = events / THREADS;
    for (unsigned i = 0; i < THREADS; i++)
        s.bits[i] = calloc(1, count / 8 + 1);
    while (!t && !waitpid(pid, &status, WNOHANG))
        t = try_open(pid);
    if (!t)
        fail("the writer made no trace", (uint64_t)status, 0);
    while (!over) {
        over = waitpid(pid, &status, WNOHANG) == pid;
        drain(t, &s);
    }
    trace_refresh(t);
    if (status)
        fail("the writer", (uint64_t)status, 0);
    if (trace_damaged(t) || trace_head(t)->lost)
        fail("damaged, lost", trace_damaged(t), trace_head(t)->lost);
    if (trace_read(t) + trace_overwritten(t) != written(t, pid))
        fail("read and overwritten, written",
             trace_read(t) + trace_overwritten(t), written(t, pid));
    if (s.events + trace_overwritten(t) < count * THREADS)
        fail("events and overwritten", s.events, trace_overwritten(t));
    printf("%" PRIu64 " events: %" PRIu64 " read, %" PRIu64
           " records overwritten, %" PRIu64 " of other kinds; none torn, none "
           "twice\n", count * THREADS, s.events, trace_overwritten(t), s.other);
    if (!s.events)
        fail("none was read", 0, 0);
    trace_close(t);
    clean(pid);
    return 0;
}

static void pause_us(long us)
{
    struct timespec t = {.tv_nsec = us * 1000};

    nanosleep(&t, NULL);
}

/* Killed some time after it began, or after its first events. */
static int kills(unsigned times)
{
    uint64_t events = 0;
    unsigned none = 0;

    srandom((unsigned)getpid());
    for (unsigned i = 0; i < times; i++) {
        static struct seen s;
        struct trace *t = NULL;
        pid_t pid = start(0);

        s = (struct seen){0};
        while (i % 2 && !t)
            t = try_open(pid);
        trace_close(t);
        pause_us(random() % 15000);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        t = try_open(pid);
        if (!t && i % 2)
            fail("no trace any more, at", i, 0);
        if (!t) {
            none++; /* not begun yet */
            clean(pid);
            continue;
        }
        drain(t, &s);
        if (trace_damaged(t) || trace_head(t)->ended)
            fail("damaged, ended", trace_damaged(t), trace_head(t)->ended);
        /* the one being written when it was killed has a number, perhaps */
        if (trace_read(t) + trace_overwritten(t) > written(t, pid) ||
            trace_read(t) + trace_overwritten(t) + THREADS + 1 <
                written(t, pid))
            fail("read and overwritten, written",
                 trace_read(t) + trace_overwritten(t), written(t, pid));
        events += s.events;
        trace_close(t);
        clean(pid);
    }
    printf("killed %u times: %" PRIu64 " events read, %u had no trace yet\n",
           times, events, none);
    return times > 10 && !events;
}

int main(int argc, char **argv)
{
    int status;

    if (argc > 2 && !strcmp(argv[1], "--write"))
        return writer(strtoull(argv[2], NULL, 10));
    self = argv[0];
    if (!mkdtemp(dir))
        return 2;
    if (argc > 2 && !strcmp(argv[1], "--kill"))
        status = kills((unsigned)strtoul(argv[2], NULL, 10));
    else
        status = race(strtoull(argc > 1 ? argv[1] : "1000000", NULL, 10));
    if (rmdir(dir) && !status)
        perror(dir);
    return status;
}
