/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One file copied: up to `depth` pieces are on their way at a time, each in a
 * buffer of its own from malloc, read and then written by the ring. Holes are
 * left holes. The file may grow or shrink meanwhile, or not know its size:
 * what is read is what is copied, up to the first read of nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lapse_cp.h"
#include "rcache/lapse_rcache_backends.h"

struct copy {
    struct copier *how;
    const char *from_name, *to_name;
    int from, to;
    off_t size;     /* as it was at first */
    off_t next;     /* where the next piece begins */
    off_t data_end; /* no hole from `next` to here */
    off_t end;      /* of what was written */
    bool tail;      /* one piece is on its way behind the size */
    bool over;      /* the end of the file was read */
    bool failed;    /* it said why */
};

/* A buffer on its way. */
struct piece {
    char *buffer;
    lapse_region *region;
    off_t offset;
    size_t len, done;
    bool writing;
};

static void fail(struct copy *c, const char *name, int err)
{
    if (!c->failed)
        complain(name, strerror(-err));
    c->failed = true;
}

static void queue(struct copy *c, struct piece *p, unsigned i)
{
    ring_queue(&c->how->ring,
               p->writing ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED,
               p->writing ? c->to : c->from, p->buffer + p->done,
               (unsigned)(p->len - p->done),
               (uint64_t)p->offset + p->done,
               lapse_region_uring_index(p->region), i);
}

/* Where a file system cannot say, all is data. */
static void skip_hole(struct copy *c)
{
    off_t data, hole;

    if (c->next < c->data_end || c->next >= c->size)
        return;
    data = lseek(c->from, c->next, SEEK_DATA);
    hole = data < 0 ? -1 : lseek(c->from, data, SEEK_HOLE);
    if (hole > data) {
        c->next = data;
        c->data_end = hole;
    } else {
        if (data < 0 && errno == ENXIO)
            c->next = c->size; /* a hole up to the end */
        c->data_end = c->size;
    }
    if (c->data_end > c->size)
        c->data_end = c->size;
}

/* The next piece of the file; no length: there is none now. */
static struct piece choose(struct copy *c)
{
    size_t most = c->how->buffer_bytes;
    struct piece p = {0};

    if (c->over || c->failed || c->tail)
        return p;
    skip_hole(c);
    p.offset = c->next;
    p.len = most;
    if (c->next < c->data_end && (off_t)most > c->data_end - c->next)
        p.len = (size_t)(c->data_end - c->next);
    return p;
}

/* 0 or -errno. */
static int take_buffer(struct copy *c, struct piece *p)
{
    int err;

    p->buffer = malloc(p->len);
    if (!p->buffer)
        return -ENOMEM;
    err = lapse_rcache_get(c->how->cache, p->buffer, p->len,
                           LAPSE_RCACHE_READ | LAPSE_RCACHE_WRITE,
                           &p->region);
    if (err)
        free(p->buffer);
    return err;
}

/* True: a piece is under way. `busy` others are: with those it goes on when
   no more memory is to be had or may be pinned. */
static bool begin(struct copy *c, struct piece *p, unsigned i, unsigned busy)
{
    int err;

    *p = choose(c);
    if (!p->len)
        return false;
    err = take_buffer(c, p);
    if (err == -ENOMEM && busy)
        return false;
    if (err) {
        complain_of_pinning(err);
        c->failed = true;
        return false;
    }
    c->tail = p->offset >= c->size;
    c->next = p->offset + (off_t)p->len;
    queue(c, p, i);
    return true;
}

static void finish(struct copy *c, struct piece *p)
{
    lapse_rcache_put(c->how->cache, p->region);
    free(p->buffer);
}

/* It came to the end of the file. */
static void cut_short(struct copy *c, struct piece *p)
{
    c->over = true;
    p->len = p->done;
}

/* What came back. True: the piece is under way still. */
static bool advance(struct copy *c, struct piece *p, unsigned i, int result)
{
    if (result < 0 || (!result && p->writing)) {
        fail(c, p->writing ? c->to_name : c->from_name,
             result ? result : -EIO);
        return false;
    }
    p->done += (size_t)result;
    if (!result)
        cut_short(c, p);
    if (p->done == p->len) {
        if (p->writing && c->end < p->offset + (off_t)p->len)
            c->end = p->offset + (off_t)p->len;
        if (p->writing && p->offset >= c->size)
            c->tail = false;
        if (p->writing || !p->len)
            return false;
        p->writing = true;
        p->done = 0;
    }
    queue(c, p, i);
    return true;
}

static void copy_data(struct copy *c)
{
    struct piece piece[DEPTH_MOST];
    unsigned busy = 0;

    while (busy < c->how->depth && begin(c, &piece[busy], busy, busy))
        busy++;
    while (busy) {
        struct io_uring_cqe cqe;
        unsigned i;
        int err = ring_wait(&c->how->ring, &cqe);

        if (err) { /* nobody knows what the kernel still does */
            complain("io_uring", strerror(-err));
            exit(1);
        }
        i = (unsigned)cqe.user_data;
        if (advance(c, &piece[i], i, cqe.res))
            continue;
        finish(c, &piece[i]);
        if (!begin(c, &piece[i], i, busy - 1))
            busy--;
    }
}

/* A hole at the end was not written. Unless the file ended before. */
static void set_length(struct copy *c, const struct stat *target)
{
    struct stat now;
    off_t size = c->size;

    if (!fstat(c->from, &now) && now.st_size < size)
        size = now.st_size;
    if (c->failed || !S_ISREG(target->st_mode) || size <= c->end)
        return;
    if (ftruncate(c->to, size))
        fail(c, c->to_name, -errno);
    c->end = size;
}

static int open_target(struct copy *c, const struct stat *from,
                       struct stat *target)
{
    /* NONBLOCK: a FIFO would wait for a reader; it is refused below */
    c->to = open(c->to_name,
                 O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK,
                 from->st_mode & 0777);
    if (c->to < 0 || fstat(c->to, target))
        return -errno;
    return S_ISFIFO(target->st_mode) || S_ISSOCK(target->st_mode) ? -ESPIPE
                                                                   : 0;
}

static bool same_file(const struct stat *from, const char *to)
{
    struct stat other;

    return !stat(to, &other) && other.st_dev == from->st_dev &&
           other.st_ino == from->st_ino;
}

static void copy_opened(struct copy *c, const struct stat *st)
{
    struct stat target;
    int err = open_target(c, st, &target);

    if (err) {
        fail(c, c->to_name, err);
    } else {
        copy_data(c);
        set_length(c, &target);
    }
    if (c->to >= 0 && close(c->to))
        fail(c, c->to_name, -errno);
}

bool copy_file(struct copier *how, const char *from, const char *to)
{
    struct copy c = {.how = how, .from_name = from, .to_name = to, .to = -1};
    struct stat st;

    c.from = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (c.from < 0 || fstat(c.from, &st)) {
        fail(&c, from, -errno);
    } else if (!S_ISREG(st.st_mode)) {
        c.failed = true;
        complain(from, "not a regular file");
    } else if (same_file(&st, to)) { /* O_TRUNC would empty it */
        c.failed = true;
        complain(from, "is the file that it should be copied to");
    } else {
        c.size = st.st_size;
        copy_opened(&c, &st);
    }
    if (c.from >= 0)
        close(c.from);
    if (!c.failed && how->verbose)
        printf("%s: %lld bytes\n", from, (long long)c.end);
    return !c.failed;
}
