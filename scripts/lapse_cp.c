/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lapse-cp: copy files through malloc'ed buffers that an io_uring reads into
 * and writes from as fixed buffers. What it is for: a program that mallocs
 * and frees its buffers as any program does, without keeping track of which
 * of them are registered. The cache does that.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "rcache/lapse_rcache_backends.h"
#include "ring.h"

static const char help[] =
"usage: lapse-cp [options] FROM TO\n"
"       lapse-cp [options] FROM... DIRECTORY\n"
"\n"
"Copies regular files through buffers from malloc, with fixed-buffer reads\n"
"and writes of an io_uring. Buffers are registered by the registration cache.\n"
"\n"
"  -b, --buffer N   bytes of a buffer (262144)\n"
"  -d, --depth N    buffers in use at a time (8, up to 64)\n"
"  -v, --verbose    say what was copied, and what the cache did\n"
"  -h, --help       this text\n";

#define DEPTH_MOST 64
#define BUFFER_MOST ((size_t)64 << 20)

struct copy {
    int from, to;
    const char *name;
    off_t size, next; /* next: where the next buffer begins */
};

/* A buffer on its way. */
struct piece {
    char *buffer;
    lapse_region *region;
    off_t offset;
    size_t len, done;
    bool writing;
};

static size_t buffer_bytes = 256 << 10;
static unsigned depth = 8;
static bool verbose;
static struct ring ring;
static lapse_rcache *cache;

static bool complain(const char *name, int err)
{
    fprintf(stderr, "lapse-cp: %s: %s\n", name, strerror(-err));
    return false;
}

static void queue(struct copy *c, struct piece *p, unsigned i)
{
    ring_queue(&ring, p->writing ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED,
               p->writing ? c->to : c->from, p->buffer + p->done,
               (unsigned)(p->len - p->done),
               (uint64_t)p->offset + p->done,
               lapse_region_uring_index(p->region), i);
}

/* 1: under way; 0: nothing left to copy; -errno. */
static int begin(struct copy *c, struct piece *p, unsigned i)
{
    size_t left = (size_t)(c->size - c->next);
    int err;

    if (!left)
        return 0;
    *p = (struct piece){.offset = c->next,
                        .len = left < buffer_bytes ? left : buffer_bytes};
    p->buffer = malloc(p->len);
    if (!p->buffer)
        return -ENOMEM;
    err = lapse_rcache_get(cache, p->buffer, p->len,
                           LAPSE_RCACHE_READ | LAPSE_RCACHE_WRITE,
                           &p->region);
    if (err) {
        free(p->buffer);
        return err;
    }
    c->next += (off_t)p->len;
    queue(c, p, i);
    return 1;
}

static void finish(struct piece *p)
{
    lapse_rcache_put(cache, p->region);
    free(p->buffer);
}

/* What came back; 1: under way still; 0: done; -errno. */
static int advance(struct copy *c, struct piece *p, unsigned i, int result)
{
    if (result <= 0)
        return result ? result : -EIO; /* the file became shorter */
    p->done += (size_t)result;
    if (p->done == p->len) {
        if (p->writing)
            return 0;
        p->writing = true;
        p->done = 0;
    }
    queue(c, p, i);
    return 1;
}

static int copy_data(struct copy *c)
{
    struct piece piece[DEPTH_MOST];
    unsigned busy = 0;
    int err = 0, state = 1;

    for (unsigned i = 0; i < depth && state == 1; i++) {
        state = begin(c, &piece[i], i);
        if (state == 1)
            busy++;
    }
    err = state < 0 ? state : 0;
    while (busy) {
        struct io_uring_cqe cqe;
        unsigned i;

        state = ring_wait(&ring, &cqe);
        if (state) { /* nobody knows what the kernel still does */
            complain("io_uring", state);
            exit(1);
        }
        i = (unsigned)cqe.user_data;
        state = advance(c, &piece[i], i, cqe.res);
        if (state == 1)
            continue;
        finish(&piece[i]);
        if (!state && !err)
            state = begin(c, &piece[i], i);
        if (state != 1)
            busy--;
        if (state < 0 && !err)
            err = state;
    }
    return err;
}

static bool copy_file(const char *from, const char *to)
{
    struct copy c = {.name = from, .to = -1};
    struct stat st;
    int err = 0;

    c.from = open(from, O_RDONLY | O_CLOEXEC);
    if (c.from < 0)
        return complain(from, -errno);
    if (fstat(c.from, &st) || !S_ISREG(st.st_mode))
        err = -EINVAL;
    c.size = st.st_size;
    if (!err) {
        struct stat other;

        if (!stat(to, &other) && other.st_dev == st.st_dev &&
            other.st_ino == st.st_ino)
            err = -EEXIST; /* the same file: O_TRUNC would empty it */
    }
    if (!err) {
        c.to = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                    st.st_mode & 0777);
        if (c.to < 0) {
            close(c.from);
            return complain(to, -errno);
        }
        err = copy_data(&c);
    }
    close(c.from);
    if (c.to >= 0 && close(c.to) && !err)
        err = -errno;
    if (err)
        return complain(from, err);
    if (verbose)
        printf("%s: %lld bytes\n", from, (long long)c.size);
    return true;
}

static bool is_directory(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static bool copy_all(int n, char **from, const char *to)
{
    bool ok = true, into = is_directory(to);
    char path[4096];

    if (n > 1 && !into)
        return complain(to, -ENOTDIR);
    for (int i = 0; i < n; i++) {
        const char *base = strrchr(from[i], '/');

        snprintf(path, sizeof(path), "%s/%s", to, base ? base + 1 : from[i]);
        ok &= copy_file(from[i], into ? path : to);
    }
    return ok;
}

static void say_stats(void)
{
    struct lapse_rcache_stats s = {.size = sizeof(s)};

    lapse_rcache_stats(cache, &s);
    printf("cache: %llu hits, %llu misses, %llu invalidated, %llu evicted\n",
           (unsigned long long)s.hits, (unsigned long long)s.misses,
           (unsigned long long)s.invalidated, (unsigned long long)s.evicted);
}

static bool number(const char *text, size_t most, size_t *out)
{
    char *end;

    *out = strtoull(text, &end, 10);
    return *text >= '1' && *text <= '9' && !*end && *out <= most;
}

static int usage(void)
{
    fputs("lapse-cp: see lapse-cp --help\n", stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"buffer", required_argument, NULL, 'b'},
        {"depth", required_argument, NULL, 'd'},
        {"verbose", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct lapse_rcache_ops ops;
    size_t n;
    int err;

    for (int c; (c = getopt_long(argc, argv, "b:d:vh", longs, NULL)) != -1;) {
        if (c == 'h') {
            fputs(help, stdout);
            return 0;
        } else if (c == 'b' && number(optarg, BUFFER_MOST, &n)) {
            buffer_bytes = n;
        } else if (c == 'd' && number(optarg, DEPTH_MOST, &n)) {
            depth = (unsigned)n;
        } else if (c == 'v') {
            verbose = true;
        } else {
            return usage();
        }
    }
    if (argc - optind < 2)
        return usage();
    err = ring_open(&ring, DEPTH_MOST);
    if (!err)
        err = lapse_rcache_uring_open(ring.fd, 2 * DEPTH_MOST, &ops);
    if (!err)
        err = lapse_rcache_create(&ops, NULL, &cache);
    if (err) {
        complain("io_uring", err);
        return 1;
    }
    bool ok = copy_all(argc - optind - 1, argv + optind, argv[argc - 1]);
    if (verbose)
        say_stats();
    lapse_rcache_destroy(cache);
    lapse_rcache_uring_close(&ops);
    ring_close(&ring);
    return ok ? 0 : 1;
}
