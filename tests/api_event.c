/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events of the program's own: registered, written from threads, from inside
 * encode, and by signal handlers that interrupt a write or an encode of the
 * same type. Each is in the trace, whole, or was overwritten and is counted.
 * api_event [SIGNALS]: how many signals are sent (default 20000).
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "api.h"
#include "trace_ring.h"

#define WORDS 24

static char dir[] = "/tmp/lapse-event-XXXXXX";
static lapse_event_type plain, slow, nested, large;
static _Atomic uint64_t written; /* writes that returned 0 */
static _Atomic int encoding;

/* Data that cannot be whole by chance: a number, and what follows from it. */
static size_t encode_plain(void *buffer, size_t room, const void *event)
{
    uint64_t *word = buffer, n = *(const uint64_t *)event;

    if (room < WORDS * 8)
        return 0;
    for (unsigned i = 0; i < WORDS; i++)
        word[i] = n * (i + 1);
    return WORDS * 8;
}

/* Long enough for a signal to come in the middle, as it mostly does. */
static size_t encode_slow(void *buffer, size_t room, const void *event)
{
    volatile uint64_t *word = buffer;
    uint64_t n = *(const uint64_t *)event;

    (void)room;
    atomic_store(&encoding, 1);
    for (unsigned turn = 0; turn < 40; turn++)
        for (unsigned i = 0; i < WORDS; i++)
            word[i] = turn < 39 ? ~n : n * (i + 1);
    atomic_store(&encoding, 0);
    return WORDS * 8;
}

static int put(lapse_event_type type, uint64_t n)
{
    int err = lapse_event_write(type, &n);

    if (!err)
        atomic_fetch_add(&written, 1);
    return err;
}

static size_t encode_nested(void *buffer, size_t room, const void *event)
{
    uint64_t n = *(const uint64_t *)event;

    if (n % 3)
        put(nested, n - 1);
    return encode_plain(buffer, room, event);
}

static size_t encode_large(void *buffer, size_t room, const void *event)
{
    size_t len = *(const uint64_t *)event;

    memset(buffer, 'x', len < room ? len : room);
    return len;
}

static void takes_what_it_should(void)
{
    char name[80];
    lapse_event_type none = {0}, wild = {9};
    uint64_t n = 1;

    memset(name, 'n', sizeof(name));
    name[64] = 0;
    check(lapse_event_register(NULL, NULL, encode_plain, &none) == -EINVAL &&
              lapse_event_register("", NULL, encode_plain, &none) == -EINVAL &&
              lapse_event_register("a", NULL, NULL, &none) == -EINVAL &&
              lapse_event_register("a", NULL, encode_plain, NULL) == -EINVAL &&
              lapse_event_register(name, NULL, encode_plain, &none) == -EINVAL,
          "bad registrations are refused");
    check(lapse_event_write(none, &n) == -EBADF &&
              lapse_event_write(wild, &n) == -EBADF &&
              lapse_event_write((lapse_event_type){~0u}, &n) == -EBADF,
          "types nobody registered are refused");
    n = LAPSE_EVENT_MAX;
    check(lapse_event_write(large, &n) == 0, "the largest event");
    atomic_fetch_add(&written, 1);
    n++;
    check(lapse_event_write(large, &n) == -EMSGSIZE, "one byte more");
    check(put(nested, 3 * 4 + 2) == 0 && atomic_load(&written) == 4,
          "an event, and two from inside encode");
}

static _Atomic uint64_t in_encode, in_write, signals;
static _Atomic int errors;

static void handler(int signal)
{
    (void)signal;
    if (atomic_load(&encoding))
        atomic_fetch_add(&in_encode, 1);
    else
        atomic_fetch_add(&in_write, 1);
    if (put(plain, atomic_fetch_add(&signals, 1)))
        atomic_fetch_add(&errors, 1);
}

/* Each 20 us of the time that this thread runs for, more or less. */
static timer_t signals_begin(void)
{
    struct sigaction action = {.sa_handler = handler};
    struct sigevent how = {.sigev_notify = SIGEV_SIGNAL,
                           .sigev_signo = SIGUSR1};
    struct itimerspec every = {{0, 20000}, {0, 20000}};
    timer_t timer;

    sigaction(SIGUSR1, &action, NULL);
    need(!timer_create(CLOCK_MONOTONIC, &how, &timer), "a timer");
    need(!timer_settime(timer, 0, &every, NULL), "a timer that runs");
    return timer;
}

static void signals_interrupt(uint64_t n)
{
    timer_t timer = signals_begin();
    uint64_t i = 0;

    while (atomic_load(&signals) < n)
        if (put(slow, i++))
            atomic_fetch_add(&errors, 1);
    timer_delete(timer);
    n = atomic_load(&signals);
    check(!atomic_load(&errors), "%d writes failed", atomic_load(&errors));
    check(atomic_load(&in_encode) > n / 10,
          "of %lu signals %lu came inside encode, %lu elsewhere",
          (unsigned long)n, (unsigned long)atomic_load(&in_encode),
          (unsigned long)atomic_load(&in_write));
}

static void *many(void *arg)
{
    for (uint64_t i = 0; i < 20000; i++)
        put(plain, i * (uint64_t)(uintptr_t)arg);
    return NULL;
}

static void threads_write(void)
{
    pthread_t thread[4];

    for (uintptr_t i = 0; i < 4; i++)
        need(!pthread_create(&thread[i], NULL, many, (void *)(i + 1)),
             "a thread");
    for (unsigned i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
}

struct seen {
    uint64_t read, torn;
};

static void look(unsigned ring, const struct trace_record *r, void *arg)
{
    const struct trace_user *u = (const struct trace_user *)r;
    const uint64_t *word = (const uint64_t *)(u + 1);
    struct seen *s = arg;

    (void)ring;
    s->read++;
    if (r->kind != TRACE_USER || u->len != WORDS * 8)
        return;
    for (unsigned i = 0; i < WORDS; i++)
        if (word[i] != word[0] * (i + 1)) {
            s->torn++;
            return;
        }
}

/* Thread stacks, and what malloc gave back: these are in the trace as well. */
static uint64_t releases(void)
{
    struct lapse_stats stats = {.size = sizeof(stats)};
    uint64_t sum = 0;

    need(!lapse_stats(&stats), "counters");
    for (unsigned i = 0; i < LAPSE_PATH_COUNT; i++)
        sum += stats.path[i].releases;
    return sum;
}

static void all_are_there(void)
{
    char name[96];
    struct seen s = {0};
    uint64_t over_written = 0, first, next = 0, others = releases();
    const struct trace_header *h;
    struct stat st;
    bool well = true;
    int fd;

    snprintf(name, sizeof(name), "%s/%d.0.trace", dir, (int)getpid());
    fd = open(name, O_RDONLY | O_CLOEXEC);
    need(fd >= 0 && !fstat(fd, &st), "the trace");
    h = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    need(h != MAP_FAILED, "a look at it");
    for (unsigned i = 0; i < h->rings; i++) {
        well &= trace_ring_each(h, i, look, &s, &first);
        over_written += first;
        next += trace_ring_head(h, i)->next;
    }
    check(well, "each ring is well made");
    check(!s.torn, "%lu events are torn", (unsigned long)s.torn);
    check(next == atomic_load(&written) + others &&
              s.read + over_written == next && !h->lost,
          "%lu written, and %lu releases: %lu there, %lu overwritten, "
          "%lu lost",
          (unsigned long)atomic_load(&written), (unsigned long)others,
          (unsigned long)s.read,
          (unsigned long)over_written, (unsigned long)h->lost);
    check(h->types == 4 &&
              !strcmp(((const struct trace_type *)((const char *)h +
                                                   h->types_at))[0].name,
                      "plain"),
          "the file knows the types by name");
    munmap((void *)(uintptr_t)h, (size_t)st.st_size);
    close(fd);
    unlink(name);
}

/* Everything below runs with a trace: the variable is read at the start. */
static void again_with_trace(char **argv)
{
    need(mkdtemp(dir) != NULL, "a directory");
    setenv("LAPSE_TRACE", dir, 1);
    check(!lapse_tracing(), "no trace is kept");
    check(!lapse_event_register("early", NULL, encode_plain, &plain) &&
              !put(plain, 1), "a write without a trace is no error");
    if (api_failures)
        exit(1);
    fflush(stdout);
    execv("/proc/self/exe", argv);
    need(false, "execv");
}

static pid_t forked;

static size_t encode_fork(void *buffer, size_t room, const void *event)
{
    forked = fork();
    return encode_plain(buffer, room, event);
}

static bool is_mapped(const char *what)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    bool found = false;

    while (maps && fgets(line, sizeof line, maps))
        found |= strstr(line, what) != NULL;
    if (maps)
        fclose(maps);
    return found;
}

/* A handler that forks where a record is being written. The child has no file
 * and ends the record all the same, but not in that of its parent. */
static void child_without_file(void)
{
    struct rlimit limit, none;
    lapse_event_type type;
    uint64_t n = 1;
    int status;

    getrlimit(RLIMIT_FSIZE, &limit);
    none = limit;
    none.rlim_cur = 0;
    need(!lapse_event_register("fork", NULL, encode_fork, &type), "type");
    printf("one line that there is no trace is due:\n");
    fflush(stdout);
    setrlimit(RLIMIT_FSIZE, &none);
    lapse_event_write(type, &n);
    if (forked == 0)
        _exit(is_mapped(dir));
    setrlimit(RLIMIT_FSIZE, &limit);
    status = wait_for(forked, 10);
    check(!status && is_mapped(dir),
          "the child leaves its parent's trace alone (%#x)", status);
}

int main(int argc, char **argv)
{
    uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000;

    if (!getenv("LAPSE_TRACE"))
        again_with_trace(argv);
    strcpy(dir, getenv("LAPSE_TRACE"));
    check(lapse_tracing(), "a trace is kept");
    need(!lapse_event_register("plain", "n:u64", encode_plain, &plain) &&
             !lapse_event_register("slow", NULL, encode_slow, &slow) &&
             !lapse_event_register("nested", NULL, encode_nested, &nested) &&
             !lapse_event_register("large", "all:str", encode_large, &large),
         "types");
    takes_what_it_should();
    threads_write();
    signals_interrupt(n);
    all_are_there();
    child_without_file();
    rmdir(dir);
    return api_failures != 0;
}
