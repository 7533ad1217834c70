/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is taken out of a file goes from all memory that maps it: each call
 * that can, with the file mapped twice and privately, through a descriptor of
 * its own, on tmpfs, as a memfd and on the disk. Each page of a mapping holds
 * its number in the file, read as a device would (the oracle).
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "api.h"

#define PAGES 16
#define LEN (PAGES * PAGE)
#define EVENTS 512
#define MAPPINGS 3
#define SECOND 4 /* the second mapping begins at this page of the file */

static lapse_handle sub;
static struct lapse_event events[EVENTS];
static int event_count;

static void drain(void)
{
    int n;

    event_count = 0;
    do {
        n = lapse_poll(sub, events + event_count, 16);
        need(n >= 0, "lapse_poll");
        event_count += n;
    } while ((n == 16 || lapse_pending(sub)) && event_count < EVENTS - 16);
}

static bool told(const char *page)
{
    for (int e = 0; e < event_count; e++)
        if (event_overlaps(&events[e], page, PAGE))
            return true;
    return false;
}

/* Where the file is, and how to open it again. */
static char path[256], other[256], place[64];
static const char *kind;

/* A file of PAGES pages; three mappings: all of it, a part, and privately. */
static struct {
    char *at[MAPPINGS];
    size_t first[MAPPINGS], pages[MAPPINGS];
    int fd;
} f;

static void write_numbers(int fd)
{
    uint64_t numbers[PAGE / 8];

    need(ftruncate(fd, 0) == 0, "ftruncate");
    for (uint64_t i = 0; i < PAGES; i++) {
        for (size_t k = 0; k < PAGE / 8; k++)
            numbers[k] = i + 1;
        need(pwrite(fd, numbers, PAGE, (off_t)(i * PAGE)) == PAGE, "pwrite");
    }
}

static void begin(void)
{
    static const int flags[] = {MAP_SHARED, MAP_SHARED, MAP_PRIVATE};

    if (!strcmp(kind, "memfd")) {
        f.fd = memfd_create("file", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", f.fd);
    } else {
        f.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    }
    need(f.fd >= 0, path);
    write_numbers(f.fd);
    for (int m = 0; m < MAPPINGS; m++) {
        int fd = open(path, O_RDWR | O_CLOEXEC); /* one of its own */

        f.first[m] = m == 1 ? SECOND : 0;
        f.pages[m] = m == 1 ? 8 : PAGES;
        f.at[m] = mmap(NULL, f.pages[m] * PAGE, PROT_READ | PROT_WRITE,
                       flags[m], fd, (off_t)(f.first[m] * PAGE));
        need(fd >= 0 && f.at[m] != MAP_FAILED, "mmap");
        close(fd);
        for (size_t i = 0; i < f.pages[m]; i++)
            __atomic_load_n(f.at[m] + i * PAGE, __ATOMIC_RELAXED);
        need(!lapse_watch(sub, f.at[m], f.pages[m] * PAGE), "lapse_watch");
    }
    drain();
}

/* A page that a hole only touches loses one end, in place. */
static bool is_lost(int m, size_t page)
{
    const char *at = f.at[m] + (page - f.first[m]) * PAGE;
    uint64_t first, last;

    return !pin_read(at, &first) || !pin_read(at + PAGE - 8, &last) ||
           (first != page + 1 && last != page + 1);
}

/*
 * Told must be pages from..to of the file, wherever they are mapped; up to
 * `more` at each end may be. All that is lost must be.
 */
static void expect(const char *name, size_t from, size_t to, size_t more)
{
    size_t lost = 0, missed = 0, silent = 0, extra = 0, odd = 0;

    drain();
    for (int m = 0; m < MAPPINGS; m++)
        for (size_t i = f.first[m]; i < f.first[m] + f.pages[m]; i++) {
            bool is = told(f.at[m] + (i - f.first[m]) * PAGE);
            bool gone = is_lost(m, i);

            lost += gone;
            missed += gone && !is;
            silent += i >= from && i < to && !is;
            extra += (i + more < from || i >= to + more) && is;
        }
    for (int e = 0; e < event_count; e++)
        odd += events[e].reason != LAPSE_REASON_FILE;
    check(!missed && !silent && !extra && !odd,
          "%s: %s: %zu pages lost, %zu of them untold; %zu silent, %zu told "
          "too many, %zu for another reason", kind, name, lost, missed, silent,
          extra, odd);
    for (int m = 0; m < MAPPINGS; m++) {
        lapse_unwatch(sub, f.at[m], f.pages[m] * PAGE);
        munmap(f.at[m], f.pages[m] * PAGE);
    }
    close(f.fd);
}
#define NOTHING(name) expect(name, 0, 0, 0)

static void test_lengths(void)
{
    int error;

    begin();
    need(ftruncate(f.fd, 5 * PAGE) == 0, "ftruncate");
    expect("ftruncate", 5, PAGES, 0);
    begin();
    need(ftruncate(f.fd, 5 * PAGE + 100) == 0, "ftruncate");
    expect("ftruncate in a page", 6, PAGES, 0);
    begin();
    need(ftruncate(f.fd, 0) == 0, "ftruncate");
    expect("ftruncate to nothing", 0, PAGES, 0);
    begin();
    need(ftruncate(f.fd, 2 * LEN) == 0, "ftruncate");
    NOTHING("ftruncate that extends");
    begin();
    need(syscall(SYS_ftruncate, f.fd, 3 * PAGE) == 0, "SYS_ftruncate");
    expect("syscall(SYS_ftruncate)", 3, PAGES, 0);
    begin();
    error = truncate(path, 7 * PAGE - 1);
    need(error == 0, "truncate");
    expect("truncate", 7, PAGES, 0);
    begin();
    need(syscall(SYS_truncate, path, PAGE) == 0, "SYS_truncate");
    expect("syscall(SYS_truncate)", 1, PAGES, 0);
    begin();
    errno = 0;
    error = ftruncate(-1, 0);
    check(error == -1 && errno == EBADF, "%s: errno of ftruncate", kind);
    error = truncate("/nonexistent/x", 0);
    check(error == -1 && errno == ENOENT, "%s: errno of truncate", kind);
    NOTHING("calls that fail");
}

static void test_private(void)
{
    begin();
    memset(f.at[2] + 6 * PAGE, 7, PAGE); /* a copy of this process's own */
    need(ftruncate(f.fd, 5 * PAGE) == 0, "ftruncate");
    expect("ftruncate takes private copies", 5, PAGES, 0);
    begin();
    for (size_t k = 0; k < PAGE; k += 8)
        *(uint64_t *)(f.at[2] + 6 * PAGE + k) = 7; /* as in the file */
    need(fallocate(f.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 6 * PAGE,
                   PAGE) == 0, "fallocate");
    check(!is_lost(2, 6) && is_lost(0, 6),
          "%s: a hole leaves the private copy", kind);
    expect("hole under a private copy", 6, 7, 0);
}

/* Where the file system has it. */
static void hole(const char *name, int mode, size_t from, size_t len,
                 size_t first, size_t end, size_t more)
{
    begin();
    if (fallocate(f.fd, mode, (off_t)from, (off_t)len) == 0)
        expect(name, first, end, more);
    else if (!check(errno == EOPNOTSUPP, "%s: %s is not supported", kind,
                    name))
        exit(1);
    else
        expect(name, 0, 0, PAGES);
}

static void test_holes(void)
{
    int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

    hole("PUNCH_HOLE", punch, 3 * PAGE, 2 * PAGE, 3, 5, 0);
    hole("PUNCH_HOLE in pages", punch, 3 * PAGE + 100, 3 * PAGE - 200, 4, 5, 1);
    hole("PUNCH_HOLE over the end", punch, 14 * PAGE, 9 * PAGE, 14, PAGES, 0);
    hole("ZERO_RANGE", FALLOC_FL_ZERO_RANGE, 3 * PAGE, PAGE, 3, 4, 0);
    hole("ZERO_RANGE in pages", FALLOC_FL_ZERO_RANGE, 3 * PAGE + 1, 2 * PAGE,
         4, 5, 1);
    hole("COLLAPSE_RANGE", FALLOC_FL_COLLAPSE_RANGE, 4 * PAGE, 4 * PAGE, 4,
         PAGES, 0);
    hole("INSERT_RANGE", FALLOC_FL_INSERT_RANGE, 6 * PAGE, PAGE, 6, PAGES, 0);
    hole("fallocate that extends", 0, 0, 2 * LEN, 0, 0, 0);
    hole("fallocate that only reserves", FALLOC_FL_KEEP_SIZE, 0, 2 * LEN, 0, 0,
         0);
    begin();
    need(posix_fallocate(f.fd, 0, 2 * LEN) == 0, "posix_fallocate");
    NOTHING("posix_fallocate");
    begin();
    need(syscall(SYS_fallocate, f.fd, punch, 2 * PAGE, PAGE) == 0,
         "SYS_fallocate");
    expect("syscall(SYS_fallocate)", 2, 3, 0);
}

static void opened(const char *name, int fd)
{
    need(fd >= 0, name);
    close(fd);
    expect(name, 0, PAGES, 0);
}

static void stream(const char *name, const char *mode, bool cuts)
{
    FILE *file;

    begin();
    file = fopen(path, mode);
    need(file, name);
    fclose(file);
    expect(name, 0, cuts ? PAGES : 0, 0);
}

static int open_at(int flags)
{
    const char *name = strrchr(path, '/') + 1;
    char dir[256];
    int at, fd;

    snprintf(dir, sizeof dir, "%.*s", (int)(name - path), path);
    at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    fd = openat(at, name, flags, 0600);
    close(at);
    return fd;
}

static void test_opens(void)
{
    struct open_how how = {.flags = O_WRONLY | O_TRUNC};

    stream("fopen w", "w", true);
    stream("fopen wc, which is not a cancellation point", "wc", true);
    stream("fopen r+", "r+", false);
    stream("fopen a", "a", false);
    begin();
    opened("open O_TRUNC", open(path, O_RDWR | O_TRUNC));
    begin();
    opened("open O_CREAT O_TRUNC",
           open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600));
    begin();
    opened("creat", creat(path, 0600));
    begin();
    opened("openat O_TRUNC, here", openat(AT_FDCWD, path, O_RDWR | O_TRUNC));
    begin();
    opened("openat O_TRUNC, in a directory", open_at(O_RDWR | O_TRUNC));
    begin();
    opened("syscall(SYS_open)",
           (int)syscall(SYS_open, path, O_WRONLY | O_TRUNC));
    begin();
    opened("syscall(SYS_openat)",
           (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_TRUNC));
    begin();
    opened("syscall(SYS_creat)", (int)syscall(SYS_creat, path, 0600));
    begin();
    opened("syscall(SYS_openat2)",
           (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how));
    begin();
    check(open(path, O_CREAT | O_EXCL | O_TRUNC | O_RDWR, 0600) == -1 &&
              errno == EEXIST, "%s: O_EXCL", kind);
    close(open(path, O_RDONLY));
    close(open(path, O_PATH | O_TRUNC));
    check(syscall(SYS_openat2, AT_FDCWD, path, 1L, sizeof how) == -1 &&
              errno == EFAULT, "%s: errno of openat2", kind);
    NOTHING("open that cuts nothing");
}

static void test_others(void)
{
    int fd;

    begin();
    fd = open(other, O_CREAT | O_RDWR | O_TRUNC | O_CLOEXEC, 0600);
    need(fd >= 0 && pwrite(fd, "x", 1, LEN) == 1, "another file");
    need(ftruncate(fd, 0) == 0, "ftruncate");
    close(fd);
    close(open(other, O_WRONLY | O_TRUNC));
    truncate(other, 100);
    unlink(other);
    NOTHING("another file");
}

static void test_place(const char *name, const char *in)
{
    kind = name;
    snprintf(place, sizeof place, "%s/lapse.XXXXXX", in);
    need(mkdtemp(place) != NULL, place);
    snprintf(path, sizeof path, "%s/file", place);
    snprintf(other, sizeof other, "%s/other", place);
    test_lengths();
    test_private();
    test_holes();
    test_opens();
    test_others();
    unlink(path);
    snprintf(path, sizeof path, "%s/file", place);
    unlink(path);
    rmdir(place);
}

/* As long as one holds a slot that announces all memory, a watch meets it. */
static bool none_in_flight(void)
{
    char *p = fresh(PAGE);
    bool none;

    drain();
    need(lapse_watch(sub, p, PAGE) == 0, "lapse_watch");
    none = !lapse_pending(sub);
    lapse_unwatch(sub, p, PAGE);
    drain();
    munmap(p, PAGE);
    drain();
    return none;
}

/* A thread that begins or ends may have something in flight for a moment; what
 * is left behind stays. */
static bool soon_none_in_flight(void)
{
    uint64_t end = now_ns() + 10000000000u;

    while (!none_in_flight()) {
        if (now_ns() > end)
            return false;
        sleep_us(1000);
    }
    return true;
}

static void *open_fifo(void *flags)
{
    return (void *)(intptr_t)open(path, (int)(intptr_t)flags, 0600);
}

static void cancel_at_fifo(const char *name, int flags)
{
    pthread_t thread;
    void *result;

    pthread_create(&thread, NULL, open_fifo, (void *)(intptr_t)flags);
    sleep_us(50000); /* it waits for a reader */
    check(soon_none_in_flight(), "%s, waiting: nothing in flight", name);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    check(result == PTHREAD_CANCELED, "%s: cancelled", name);
    check(soon_none_in_flight(), "%s, cancelled: nothing in flight", name);
}

/* Cancelled anywhere: before, in, after the calls. */
static void *cut_for_ever(void *unused)
{
    for (;;) {
        int fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);

        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
        if (fd >= 0)
            pwrite(fd, path, PAGE / 16, LEN);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE);
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
        close(fd);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    }
    return unused;
}

static void test_cancel(void)
{
    uint64_t random = 88172645463325252u;
    int left = 0, wrong = 0;
    void *result;

    snprintf(place, sizeof place, "/dev/shm/lapse.XXXXXX");
    need(mkdtemp(place) != NULL, place);
    snprintf(path, sizeof path, "%s/fifo", place);
    need(mkfifo(path, 0600) == 0, "mkfifo");
    cancel_at_fifo("open of a FIFO", O_WRONLY);
    cancel_at_fifo("open O_TRUNC of a FIFO", O_WRONLY | O_CREAT | O_TRUNC);
    unlink(path);
    for (int i = 0; i < 1000; i++) {
        pthread_t thread;

        pthread_create(&thread, NULL, cut_for_ever, NULL);
        sleep_us((long)(random_next(&random) % 300));
        pthread_cancel(thread);
        pthread_join(thread, &result);
        wrong += result != PTHREAD_CANCELED;
        left += !none_in_flight();
        if (left)
            break;
    }
    check(!wrong && !left, "threads cancelled in calls that cut: %d not, "
          "%d left something in flight", wrong, left);
    for (int fd = 3; fd < 2048; fd++)
        close(fd); /* theirs, as they got no chance to */
    unlink(path);
    rmdir(place);
}

static atomic_bool enough;

static void *cut_on(void *fd)
{
    for (uint64_t i = 0; !atomic_load(&enough); i++) {
        need(ftruncate((int)(intptr_t)fd, 0) == 0, "ftruncate");
        need(pwrite((int)(intptr_t)fd, &i, sizeof i, 0) == sizeof i, "pwrite");
        sleep_us((long)(i % 4) * 50);
    }
    return NULL;
}

/*
 * G2: mapped, watched and pinned while another thread cuts the file all the
 * time. Once the page is another one, the registration must have lapsed.
 */
static void test_race(void)
{
    int fd = memfd_create("race", MFD_CLOEXEC), stale = 0, rounds = 0;
    uint64_t end = now_ns() + 500000000u, value, now;
    pthread_t thread;

    pthread_create(&thread, NULL, cut_on, (void *)(intptr_t)fd);
    while (now_ns() < end) {
        char *p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);

        need(p != MAP_FAILED && lapse_watch(sub, p, PAGE) == 0, "watch");
        if (pin_read(p, &value) && !lapse_pending(sub)) {
            while (pin_read(p, &now) && now == value)
                ;
            stale += !lapse_pending(sub);
            rounds++;
        }
        lapse_unwatch(sub, p, PAGE);
        munmap(p, PAGE);
        drain();
    }
    atomic_store(&enough, true);
    pthread_join(thread, NULL);
    close(fd);
    drain();
    check(rounds && !stale, "registered while the file is cut: %d of %d "
          "rounds stale", stale, rounds);
}

/* A first watch that comes while an open() that may cut waits. */
static void test_late(void)
{
    lapse_handle first;
    pthread_t thread;
    char fifo[64];
    int fd;

    strcpy(path, "/dev/shm/lapse.late.XXXXXX");
    fd = mkstemp(path);
    unlink(path);
    need(fd >= 0 && mkfifo(path, 0600) == 0, "mkfifo");
    strcpy(fifo, path);
    pthread_create(&thread, NULL, open_fifo,
                   (void *)(intptr_t)(O_WRONLY | O_TRUNC));
    sleep_us(50000);
    first = subscribe(LAPSE_POLL, 0, NULL, NULL);
    need(lapse_watch(first, path, 1) == 0, "lapse_watch");
    close(open(fifo, O_RDONLY));
    pthread_join(thread, NULL);
    check(!lapse_pending(first), "a FIFO is no file, also when told late");
    lapse_unsubscribe(first);
    close(fd);
    unlink(fifo);
}

static void *all_places(void *unused)
{
    test_place("tmpfs", "/dev/shm");
    test_place("memfd", "/tmp");
    test_place("disk", "/tmp");
    return unused;
}

static void test_counts(void)
{
    struct lapse_stats before = {.size = sizeof before}, after = before;
    int fd = memfd_create("counts", MFD_CLOEXEC);

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    lapse_stats(&before);
    close(open(path, O_RDONLY));
    close(open(path, O_RDWR | O_TRUNC));
    ftruncate(fd, LEN);
    truncate(path, 0);
    fallocate(fd, 0, 0, LEN);
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE);
    lapse_stats(&after);
    for (int p = LAPSE_PATH_FALLOCATE; p <= LAPSE_PATH_OPEN; p++)
        check(after.path[p].releases == before.path[p].releases + 1 &&
                  after.path[p].calls == before.path[p].calls + 1,
              "%s is counted once", lapse_path_name((unsigned)p));
    close(fd);
}

int main(void)
{
    pthread_t thread;

    setvbuf(stdout, NULL, _IOLBF, 0);
    test_counts();
    test_late();
    sub = subscribe(LAPSE_POLL, 0, NULL, NULL);
    all_places(NULL);
    /* libc has other sites for a program with threads */
    pthread_create(&thread, NULL, all_places, NULL);
    pthread_join(thread, NULL);
    test_counts();
    test_race();
    test_cancel();
    return api_end();
}
